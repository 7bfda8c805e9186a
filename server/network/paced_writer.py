"""Answers over TLS, given to the transport a piece at a time.

Such a transport encrypts all that it is given at once and has the transport below it hold the result, of which nobody
above is told: however large an answer, it counts as sent. Of small pieces the one that finds the transport below full
stays with it, and it says so.
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
        """To be written after what is there."""
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
        """Leave it to the transport, which is about to close."""
        while self.unsent:
            self.write()
