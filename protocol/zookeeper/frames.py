"""The server's side of one connection without I/O: bytes in, whole frames out.

Before a session begins, a client may send one of ZooKeeper's four-letter words in place of a frame's length.
"""

from __future__ import annotations

from struct import Struct

from ..errors import ProtocolError
from .constants import MAX_FRAME

_length = Struct(">i")
LENGTH_SIZE = 4


class FrameStream:
    """Splits a client's stream. Memory follows the received bytes, never the declared length."""

    __slots__ = ("_at", "_buffer", "_is_first")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self._is_first = True

    @property
    def pending(self) -> int:
        """Return the number of received bytes that have not been returned."""
        return len(self._buffer) - self._at

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += data

    def four_letter_word(self) -> str | None:
        """Return the four-letter word at the start of the connection; None if there is none."""
        word = bytes(self._buffer[:LENGTH_SIZE])
        is_word = self._is_first and len(word) == LENGTH_SIZE and word.isalnum() and word.isascii()
        return word.decode() if is_word and word.islower() else None

    def next(self) -> bytes | None:
        """Return the next whole frame without its length, or None. Raises ProtocolError for an invalid length."""
        start = self._at + LENGTH_SIZE
        if len(self._buffer) < start:
            return None
        size: int = _length.unpack_from(self._buffer, self._at)[0]
        if not 0 <= size <= MAX_FRAME:
            raise ProtocolError(f"frame of {size} bytes; expected 0 to {MAX_FRAME}")
        end = start + size
        if len(self._buffer) < end:
            return None
        frame = bytes(self._buffer[start:end])
        self._at = end
        self._is_first = False
        if end == len(self._buffer):
            self._buffer.clear()
            self._at = 0
        return frame


def frame(*parts: bytes) -> bytes:
    return b"".join((_length.pack(sum(map(len, parts))), *parts))
