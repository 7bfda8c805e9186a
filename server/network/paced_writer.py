"""Answers over TLS, given to the transport a piece at a time.

A TLS transport encrypts at once whatever it is given and leaves the result with the transport below, without saying how
much waits there: however large an answer is, it counts as sent. Given small pieces, it pauses writing as soon as the
transport below is full.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

PIECE_BYTES = 1 << 16
"""As much as the transport below holds before it is full."""


class PacedWriter:
    """Whoever calls `write` stops when the transport pauses writing, and calls it again when that resumes."""

    __slots__ = ("_parts", "_transport", "unsent")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._parts: deque[memoryview] = deque()
        self.unsent = 0
        """Bytes that were not given to the transport yet."""

    def add(self, parts: list[Any]) -> None:
        """Queue buffers behind what is unsent."""
        for part in parts:
            view = memoryview(part).cast("B")
            self._parts += (view[start : start + PIECE_BYTES] for start in range(0, len(view), PIECE_BYTES))
            self.unsent += len(view)

    def write(self) -> None:
        """Give the transport the next piece."""
        piece = self._parts.popleft()
        self.unsent -= len(piece)
        self._transport.write(piece)

    def write_all(self) -> None:
        """Give everything to the transport, which is about to close."""
        while self.unsent:
            self.write()
