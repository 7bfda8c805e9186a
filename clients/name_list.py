"""Validation of lists of names: a single string would be iterated by its letters."""

from __future__ import annotations

from collections.abc import Iterable


def name_list(names: Iterable[str], what: str) -> list[str]:
    """Return the names; `what` is their name in the message. Raises TypeError for a string."""
    if isinstance(names, str):
        raise TypeError(f"{what} must be a list of names, not a string")
    return list(names)
