"""Items of a list, each encoded when it is known: where there are many they take far less memory than as objects."""

from __future__ import annotations

PIECE_BYTES = 1 << 16
"""Pieces of about that size are handed on uncopied; many small ones would leave the memory between them unused."""


class EncodedItems:
    """In the version of the message that they are for."""

    __slots__ = ("_count", "pieces")

    def __init__(self) -> None:
        self._count = 0
        self.pieces = [bytearray()]
        """The items one behind the other."""

    def __len__(self) -> int:
        return self._count

    def add(self, item: bytes) -> None:
        """One more, behind the others."""
        if len(self.pieces[-1]) + len(item) > PIECE_BYTES:
            self.pieces.append(bytearray())
        self.pieces[-1] += item
        self._count += 1
