"""What keeps the answer to a request that names many things from filling the memory."""

from __future__ import annotations

MOST_ITEMS = 20_000
"""So many groups and the like are answered, because an answer is encoded in one go. Java's admin client asks again for
what it was told nothing about."""
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
