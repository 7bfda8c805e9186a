"""What keeps answers that hold much from filling the memory, or from keeping others waiting while they are encoded."""

from __future__ import annotations

from typing import Any

from ...protocol.schema import fields_of

LONG_ANSWER_ITEMS = 1000
"""An answer with more of anything is encoded beside the loop: so many take a millisecond or two."""
ANSWER_BYTES = 32 * 1024 * 1024
"""About so large may an answer get that says more than was asked, before the rest is put off."""


class Budget:
    """Bytes that one answer may still say.

    What comes first is said whatever its size, so that whoever asks again for the rest gets on.
    """

    def __init__(self) -> None:
        self._left = ANSWER_BYTES

    @property
    def is_spent(self) -> bool:
        """Whether what comes now has to be put off."""
        return self._left <= 0

    def spend(self, size: int) -> None:
        """So much has been said."""
        self._left -= size


def holds_much(response: Any) -> bool:
    """Whether encoding it takes long: it lists more than `LONG_ANSWER_ITEMS` things, or things that together do."""
    count = 0
    for top in _lists_of(response):
        count += len(top)
        if count <= LONG_ANSWER_ITEMS and top and hasattr(top[0], "__wire_fields__"):
            count += sum(len(inner) for one in top for inner in _lists_of(one))
    return count > LONG_ANSWER_ITEMS


def _lists_of(message: Any) -> list[list[Any]]:
    values = (getattr(message, field.name) for field in fields_of(type(message)))
    return [value for value in values if isinstance(value, list)]
