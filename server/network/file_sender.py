"""Answers that carry stretches of files: pages of the page cache, passed on past the transport's buffer.

A fetch of megabytes is neither copied into this process nor held in it while a slow client takes it. The transport
gives its descriptor for that time and has nothing of its own to send; its connection handles no other request.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from ...storage.filesystem import FileSlice
from ..runtime.turns import SENT_BYTES

_MORE = getattr(socket, "MSG_MORE", 0)
"""Tells the kernel that a small piece need not travel alone."""


def has_file_slices(parts: list[Any]) -> bool:
    """Whether a `FileSender` is needed for these parts of an answer."""
    return any(isinstance(part, FileSlice) for part in parts)


def read_into_memory(parts: list[Any]) -> list[Any]:
    """The same parts with every file slice read, for transports that have no descriptor. Raises OSError."""
    return [part.read() if isinstance(part, FileSlice) else part for part in parts]


def limit_send_buffer(stream: Any, size: int) -> None:
    """Set the send buffer of the connections that a listening socket accepts; -1 leaves it to the system.

    With a small buffer a client always has something to read. One that the system lets grow is not full for long: the
    client waits for each few pages, and waking it up costs two to three times what sending them does.
    """
    if size > 0:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)


class FileSender:
    """Sends the parts of one answer in order. Loop-thread only."""

    __slots__ = ("_done", "_loop", "_parts", "_sent_of_first", "_socket", "_waits", "unsent")

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
        self._sent_of_first = 0
        self._loop = loop
        self._done = done
        self._waits = False
        self.unsent = size
        """Bytes that the kernel has not taken yet."""

    def send(self) -> None:
        """Send what the kernel takes; go on when it takes more."""
        enough = self.unsent - SENT_BYTES
        try:
            while self._parts and self.unsent > enough:
                self._send_first(self.unsent - enough)
        except BlockingIOError:
            self._go_on_later()
        except OSError as error:
            self.close()
            self._done(error)
        else:
            if self._parts:
                self._go_on_later()
            else:
                self.close()
                self._done(None)

    def _send_first(self, most: int) -> None:
        """Send as much of the first part as goes at once; of a file, `most` bytes.

        Raises BlockingIOError if nothing goes, OSError.
        """
        part, start = self._parts[0], self._sent_of_first
        if isinstance(part, FileSlice):
            sent = part.send(self._socket.fileno(), start, most)
        else:
            sent = self._socket.send(memoryview(part)[start:], _MORE if len(self._parts) > 1 else 0)
        self.unsent -= sent
        self._sent_of_first = start + sent
        if start + sent == len(part):
            self._parts.popleft()
            self._sent_of_first = 0

    def _go_on_later(self) -> None:
        """Go on when the socket has room again."""
        if not self._waits:
            self._waits = True
            # The transport watches its own descriptor, so this one is another for the same socket.
            self._loop.add_writer(self._socket, self.send)

    def close(self) -> None:
        """Send nothing more; `done` is not called."""
        if self._waits:
            self._waits = False
            self._loop.remove_writer(self._socket)
        self._parts.clear()
        self._socket.close()
