"""Lists of names as callers give them: one name instead of a list of one would be taken for its letters."""

from __future__ import annotations

from collections.abc import Iterable


def name_list(names: Iterable[str], what: str) -> list[str]:
    """The names, called `what` towards the caller. Raises TypeError for a text."""
    if isinstance(names, str):
        raise TypeError(f"{what} is a list of names, not one name")
    return list(names)
