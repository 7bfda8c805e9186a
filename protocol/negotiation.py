"""Choosing the version of a request that both sides speak."""

from __future__ import annotations

from .schema import Versions


def negotiate(ours: Versions, theirs: Versions) -> int | None:
    """The highest version in both ranges, None if they do not meet."""
    highest = min(ours.last, theirs.last)
    return highest if highest >= max(ours.first, theirs.first) else None
