"""Items of a list, each encoded when it is created, which takes far less memory than many objects."""

from __future__ import annotations

PIECE_BYTES = 1 << 16
"""Pieces of about this size are passed on without a copy; many small ones would fragment the memory."""


class EncodedItems:
    """Encoded for one version of the message."""

    __slots__ = ("_count", "pieces")

    def __init__(self) -> None:
        self._count = 0
        self.pieces = [bytearray()]
        """The items in order."""

    def __len__(self) -> int:
        return self._count

    def add(self, item: bytes) -> None:
        """Append an item."""
        if len(self.pieces[-1]) + len(item) > PIECE_BYTES:
            self.pieces.append(bytearray())
        self.pieces[-1] += item
        self._count += 1
