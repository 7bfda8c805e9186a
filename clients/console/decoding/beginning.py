"""The beginning of a text that may be long."""

from __future__ import annotations

from collections.abc import Iterable


def beginning(pieces: Iterable[str], most: int) -> tuple[str, bool]:
    """No more is made than is shown: where much is nested deep, nearly all would be indents. And whether it was cut."""
    taken, left = list[str](), most
    for piece in pieces:
        taken.append(piece[:left])
        if len(piece) > left:
            return "".join(taken), True
        left -= len(piece)
    return "".join(taken), False
