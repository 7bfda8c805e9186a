"""Limits on the size of one response: in memory, and for its encoding on the event loop."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...protocol.schema import Primitive, fields_of

LARGE_RESPONSE_ITEMS = 1000
"""A response with more items is encoded in a lane: the encoding of 1000 items takes one or two milliseconds."""
RESPONSE_BYTES = 32 * 1024 * 1024
"""Approximate maximum size of a response to a short request, such as a description of all groups."""


class ResponseBudget:
    """The bytes that one response may still take.

    The first item always fits, so that a client which repeats the request for the omitted items makes progress.
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        """`max_bytes` defaults to `RESPONSE_BYTES`."""
        self._left = RESPONSE_BYTES if max_bytes is None else max_bytes

    @property
    def is_exhausted(self) -> bool:
        """Whether the next item does not fit."""
        return self._left <= 0

    def spend(self, size: int) -> None:
        """Subtract the bytes of an item."""
        self._left -= size


def is_large_response(response: Any) -> bool:
    """Return whether all lists of the response together have more than `LARGE_RESPONSE_ITEMS` items.

    Lists of numbers do not count: each is encoded by a single call.
    """
    count, level = 0, _lists_of(response)
    while level:
        count += sum(map(len, level))
        if count > LARGE_RESPONSE_ITEMS:
            return True
        level = [
            inner
            for items in level
            if items and hasattr(items[0], "__wire_fields__") and _list_fields(items[0].__class__)
            for item in items
            for inner in _lists_of(item)
        ]
    return False


def _lists_of(message: Any) -> list[list[Any]]:
    return [value for name in _list_fields(message.__class__) if (value := getattr(message, name)) is not None]


@cache
def _list_fields(cls: type) -> tuple[str, ...]:
    return tuple(
        field.name
        for field in fields_of(cls)
        if field.is_array and not (isinstance(field.element, Primitive) and field.element.code)
    )
