"""Keeps large answers from filling the memory, and from blocking the loop while they are encoded."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...protocol.schema import Primitive, fields_of

LONG_ANSWER_ITEMS = 1000
"""An answer with more items is encoded beside the loop; this many take a millisecond or two."""
ANSWER_BYTES = 32 * 1024 * 1024
"""About how large an answer may get, where little was asked for much, before the rest is put off."""


class Budget:
    """Bytes that one answer may still take. The first item always fits, so that a client that asks again gets on."""

    def __init__(self, most: int | None = None) -> None:
        """`ANSWER_BYTES`, unless it says otherwise."""
        self._left = ANSWER_BYTES if most is None else most

    @property
    def is_spent(self) -> bool:
        """Whether the next item has to be put off."""
        return self._left <= 0

    def spend(self, size: int) -> None:
        """Count an item."""
        self._left -= size


def holds_much(response: Any) -> bool:
    """Whether encoding it takes long: there are more than `LONG_ANSWER_ITEMS` items in its lists and all below them.

    Numbers do not count: a list of them is written at once.
    """
    count, level = 0, _lists_of(response)
    while level:
        count += sum(map(len, level))
        if count > LONG_ANSWER_ITEMS:
            return True
        level = [
            inner
            for items in level
            if items and hasattr(items[0], "__wire_fields__") and _lists_in(items[0].__class__)
            for one in items
            for inner in _lists_of(one)
        ]
    return False


def _lists_of(message: Any) -> list[list[Any]]:
    return [value for name in _lists_in(message.__class__) if (value := getattr(message, name)) is not None]


@cache
def _lists_in(cls: type) -> tuple[str, ...]:
    return tuple(
        field.name
        for field in fields_of(cls)
        if field.is_array and not (isinstance(field.element, Primitive) and field.element.code)
    )
