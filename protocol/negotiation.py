"""Choosing the version of a request that both sides speak."""

from __future__ import annotations

from .schema import Versions


def negotiate(ours: Versions | tuple[int, int], theirs: Versions | tuple[int, int]) -> int | None:
    """The highest version in both closed ranges, None if they do not meet."""
    lowest = max(ours[0], theirs[0])
    highest = min(ours[1], theirs[1])
    return highest if highest >= lowest else None
