"""Answers over TLS, given to the transport a piece at a time.

A TLS transport encrypts at once whatever it is given and leaves the result with the transport below, without saying how
much waits there: however large an answer is, it counts as sent. Given small pieces, it pauses writing as soon as the
transport below is full. What lies in files is read by pieces, too: however much a client asks for and does not take,
it costs a piece of memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from ...storage.filesystem import FileSlice

PIECE_BYTES = 1 << 16
"""As much as the transport below holds before it is full."""


class PacedWriter:
    """Whoever calls `write` stops when the transport pauses writing, and calls it again when that resumes."""

    __slots__ = ("_parts", "_transport", "_written_of_first", "unsent")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._parts: deque[memoryview | FileSlice] = deque()
        self._written_of_first = 0
        self.unsent = 0
        """Bytes that were not given to the transport yet."""

    def add(self, parts: list[Any]) -> None:
        """Queue buffers and stretches of files behind what is unsent."""
        for part in parts:
            if len(part):
                self._parts.append(part if isinstance(part, FileSlice) else memoryview(part).cast("B"))
                self.unsent += len(self._parts[-1])

    def write(self) -> None:
        """Give the transport the next piece. Raises OSError where a file cannot be read."""
        left = min(self.unsent, PIECE_BYTES)
        pieces: list[bytes | memoryview] = []
        # One record of TLS and one system call for an answer and its head.
        while left:
            pieces.append(self._take(left))
            left -= len(pieces[-1])
        self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def _take(self, size: int) -> bytes | memoryview:
        """The next bytes of the first part, so many at most."""
        part, start = self._parts[0], self._written_of_first
        piece = part.read(start, size) if isinstance(part, FileSlice) else part[start : start + size]
        self._written_of_first += len(piece)
        self.unsent -= len(piece)
        if self._written_of_first == len(part):
            self._parts.popleft()
            self._written_of_first = 0
        return piece
