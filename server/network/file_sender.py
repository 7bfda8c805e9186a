"""Answers that carry stretches of files: sent from mapped pages of the page cache, past the transport's buffer.

A fetch of megabytes is neither copied into this process nor held in it while a slow client takes it. The transport
gives its descriptor for that time and must have nothing of its own to send; its connection handles no other request.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from ...storage.filesystem import FileSlice

_MORE = getattr(socket, "MSG_MORE", 0)
"""Tells the kernel that a small piece need not travel alone."""


def has_file_slices(parts: list[Any]) -> bool:
    """Whether a `FileSender` is needed for these parts of an answer."""
    return any(isinstance(part, FileSlice) for part in parts)


def read_into_memory(parts: list[Any]) -> list[Any]:
    """The same parts with every file slice read, for transports that have no descriptor. Raises OSError."""
    return [part.read() if isinstance(part, FileSlice) else part for part in parts]


class FileSender:
    """Sends the parts of one answer in order. Loop-thread only."""

    __slots__ = ("_done", "_loop", "_parts", "_socket", "_waits", "unsent")

    def __init__(
        self,
        stream: Any,
        parts: list[Any],
        size: int,
        loop: asyncio.AbstractEventLoop,
        done: Callable[[OSError | None], None],
    ) -> None:
        """`stream` is the transport's socket. `done` is called once, by `send` at the earliest. Raises OSError."""
        self._socket = socket.fromfd(stream.fileno(), stream.family, stream.type)
        self._socket.setblocking(False)
        self._parts = deque(parts)
        self._loop = loop
        self._done = done
        self._waits = False
        self.unsent = size
        """Bytes that the kernel has not taken yet."""

    def send(self) -> None:
        """Send what the kernel takes; go on when it takes more."""
        try:
            while self._parts:
                self._send_first()
        except BlockingIOError:
            if not self._waits:
                self._waits = True
                # The transport watches its own descriptor, so this one is another for the same socket.
                self._loop.add_writer(self._socket, self.send)
        except OSError as error:
            self.close()
            self._done(error)
        else:
            self.close()
            self._done(None)

    def _send_first(self) -> None:
        """Send of the first part as much as goes. Raises OSError."""
        part = self._parts[0]
        if isinstance(part, FileSlice):
            part = part.map()
        sent = self._socket.send(part, _MORE if len(self._parts) > 1 else 0)
        self.unsent -= sent
        if sent == len(part):
            self._parts.popleft()
        else:
            self._parts[0] = memoryview(part)[sent:]

    def close(self) -> None:
        """Send nothing more; `done` is not called."""
        if self._waits:
            self._waits = False
            self._loop.remove_writer(self._socket)
        self._parts.clear()
        self._socket.close()
