"""Three ways to send responses: small ones of many connections together, through TLS in pieces, and with file slices.

A `Connection` chooses: `ResponseBatcher` for small responses while there are many connections, `PacedWriter` for a
transport with TLS, `FileSender` for responses with records that are read from the page cache, and otherwise the
transport itself.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from ...protocol.native import native
from ...storage.filesystem import FileSlice

MIN_CONNECTIONS_TO_BATCH = 8
"""The number of connections below which each response is written immediately: a turn rarely has several."""
TURN_S = 0.0005
"""A response that follows the previous one after at least this time, in seconds, is the first of its turn. The
time of uvloop is in whole milliseconds, and advances at most once per turn."""
RESPONSES_PER_BACKGROUND_SEND = 32
"""Waiting responses that are worth waking the sending thread for."""
PIECE_BYTES = 1 << 16
"""Bytes that the transport below TLS holds before it is full."""
SENT_BYTES_PER_TURN = 4 << 20
"""Bytes of one response with file slices, however quickly its client reads."""

_MORE = getattr(socket, "MSG_MORE", 0)
"""The kernel may hold a small piece back until the next one."""


def begin_sending_py(responses: dict[int, bytes]) -> None:
    """Do nothing: a thread that sends from Python needs the interpreter. Twin of the compiled `begin_sending`."""


def finish_sending_py(responses: dict[int, bytes]) -> list[tuple[int, int]]:
    """Return the descriptors whose sockets did not take their whole response, and how many bytes they took.

    Without compiled code the transports send everything. Twin of the compiled `finish_sending`.
    """
    return [(descriptor, 0) for descriptor in responses]


def is_sending_py(responses: dict[int, bytes]) -> bool:
    """Return whether a thread still sends responses that were given to `begin_sending`.

    Twin of the compiled `is_sending`.
    """
    return False


begin_sending = begin_sending_py if native is None else native.begin_sending
finish_sending = finish_sending_py if native is None else native.finish_sending
is_sending = is_sending_py if native is None else native.is_sending


class ResponseBatcher:
    """The small responses of one turn of the loop, by descriptor. Owned by the socket server, used on its thread.

    With many connections and small requests most time is spent in the kernel's sending, above all on waking the client
    for each response: it takes the response and sleeps again before the next response is sent. Responses that are sent
    together wake it once. Another compiled thread begins to send while the loop handles further requests.

    Before a connection is closed or writes to its transport directly, it calls `flush` or `remove_connection`.
    """

    __slots__ = ("_last_response", "_loop", "_sending", "_transports", "_waiting", "is_batching")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._last_response = 0.0
        """Loop time of the last response."""
        self._transports: dict[int, asyncio.Transport] = {}
        self._sending: dict[int, bytes] = {}
        """Responses that the other thread sends."""
        self._waiting: dict[int, bytes] = {}
        """Responses to send after these."""
        self.is_batching = False
        """Whether there are enough connections for batches. If false, no response waits."""

    def add_connection(self, descriptor: int, transport: asyncio.Transport) -> None:
        """Register a connection. Its transport gets the bytes that the socket does not take."""
        self._transports[descriptor] = transport
        self._update_is_batching()

    def remove_connection(self, descriptor: int) -> None:
        """Drop a connection and its waiting response. Its socket must still be open."""
        if descriptor in self._sending:
            self._finish_sending()
        self._waiting.pop(descriptor, None)
        self._transports.pop(descriptor, None)
        self._update_is_batching()

    def add(self, descriptor: int, response: bytes, *, more_responses_follow: bool) -> None:
        """Send this in this turn, after waiting responses of the same socket. Its transport must be empty.

        `more_responses_follow`: other responses are known to follow in this turn.
        """
        waiting = self._waiting
        if not waiting and not self._sending:
            last, self._last_response = self._last_response, self._loop.time()
            if not more_responses_follow and self._last_response - last >= TURN_S:
                # The first response of a turn is often the only one: if it waited, the loop would run another turn.
                self._transports[descriptor].write(response)
                return
            self._loop.call_soon(self._end_turn)
        waiting[descriptor] = waiting[descriptor] + response if descriptor in waiting else response
        if len(waiting) >= RESPONSES_PER_BACKGROUND_SEND and not (self._sending and is_sending(self._sending)):
            # While the thread sends, the loop makes further responses: it would otherwise wait longer than it works,
            # and the clients of the first responses would delay the last ones with their next requests.
            self._begin_sending()

    def flush(self, descriptor: int) -> None:
        """Write the waiting response of a connection to its transport."""
        if descriptor in self._sending:
            self._finish_sending()
        response = self._waiting.pop(descriptor, None)
        if response is not None:
            self._transports[descriptor].write(response)

    def _begin_sending(self) -> None:
        self._finish_sending()
        self._sending, self._waiting = self._waiting, {}
        begin_sending(self._sending)

    def _finish_sending(self) -> None:
        sending, self._sending = self._sending, {}
        if not sending:
            return
        for descriptor, sent in finish_sending(sending):
            # The transport keeps the rest and the response after it, or finds out why the socket took no more.
            response = sending[descriptor][sent:] + self._waiting.pop(descriptor, b"")
            self._transports[descriptor].write(response)

    @property
    def has_waiting(self) -> bool:
        """Whether a response waits for the end of this turn."""
        return bool(self._waiting or self._sending)

    def send_waiting(self) -> None:
        """Send all responses that wait for the end of the turn."""
        self._finish_sending()
        if len(self._waiting) >= RESPONSES_PER_BACKGROUND_SEND:
            self._begin_sending()  # both threads send
        else:
            self._sending, self._waiting = self._waiting, {}
        self._finish_sending()

    def _end_turn(self) -> None:
        self.send_waiting()
        self._update_is_batching()

    def _update_is_batching(self) -> None:
        # A response that is written to the transport must not overtake a waiting response.
        is_waiting = bool(self._waiting or self._sending)
        self.is_batching = len(self._transports) >= MIN_CONNECTIONS_TO_BATCH or is_waiting


class PacedWriter:
    """The responses of one TLS connection, written to its transport a piece at a time. Owned by the connection.

    A TLS transport encrypts immediately and passes the result to the transport below without reporting how much waits
    there: it counts even the largest response as sent. Given small pieces, it pauses writing as soon as the transport
    below is full. File slices are read by pieces, too, so that a client that requests much and reads nothing costs the
    memory of one piece. The owner stops calling `write` while the transport pauses writing.
    """

    __slots__ = ("_parts", "_transport", "_written_of_first", "unsent")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._parts: deque[memoryview | FileSlice] = deque()
        self._written_of_first = 0
        self.unsent = 0
        """Bytes that were not written to the transport yet."""

    def add(self, parts: list[Any]) -> None:
        """Queue buffers and file slices after the unsent ones."""
        for part in parts:
            if len(part):
                self._parts.append(part if isinstance(part, FileSlice) else memoryview(part).cast("B"))
                self.unsent += len(self._parts[-1])

    def write(self) -> None:
        """Write the next piece to the transport. Raises OSError if a file cannot be read."""
        left = min(self.unsent, PIECE_BYTES)
        pieces: list[bytes | memoryview] = []
        # One TLS record and one system call for a response and its header.
        while left:
            pieces.append(self._take(left))
            left -= len(pieces[-1])
        self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def _take(self, size: int) -> bytes | memoryview:
        """Remove and return at most `size` bytes of the first part."""
        part, start = self._parts[0], self._written_of_first
        piece = part.read(start, size) if isinstance(part, FileSlice) else part[start : start + size]
        self._written_of_first += len(piece)
        self.unsent -= len(piece)
        if self._written_of_first == len(part):
            self._parts.popleft()
            self._written_of_first = 0
        return piece


def limit_send_buffer(stream: Any, size: int) -> None:
    """Set the send buffer of the connections that a listening socket accepts; the system decides with -1.

    With a small buffer a client always has bytes to read. A buffer that the system enlarges is not full for long: the
    client then waits for each few pages, and waking it costs two to three times as much as sending them.
    """
    if size > 0:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)


def has_file_slices(parts: list[Any]) -> bool:
    """Return whether these parts of a response need a `FileSender`."""
    return any(isinstance(part, FileSlice) for part in parts)


def read_into_memory(parts: list[Any]) -> list[Any]:
    """Return the parts with every file slice read, for transports without a descriptor. Raises OSError."""
    return [part.read() if isinstance(part, FileSlice) else part for part in parts]


class FileSender:
    """The sender of one response with file slices: pages of the page cache, sent past the transport's buffer.

    A fetch of megabytes is neither copied into this process nor held in it while a slow client takes it. The transport
    shares its descriptor for that time and has no bytes of its own to send; its connection handles no other request.
    """

    __slots__ = ("_done", "_is_waiting", "_loop", "_parts", "_sent_of_first", "_socket", "unsent")

    def __init__(
        self,
        stream: Any,
        parts: list[Any],
        size: int,
        loop: asyncio.AbstractEventLoop,
        done: Callable[[OSError | None], None],
    ) -> None:
        """`stream` is the transport's socket. `send` or a later turn calls `done` once. Raises OSError."""
        self._socket = socket.fromfd(stream.fileno(), stream.family, stream.type)
        self._socket.setblocking(False)
        self._parts = deque(parts)
        self._sent_of_first = 0
        self._loop = loop
        self._done = done
        self._is_waiting = False
        self.unsent = size
        """Bytes that the kernel has not taken yet."""

    def send(self) -> None:
        """Send the bytes that the kernel takes, and continue when it takes more."""
        end = self.unsent - SENT_BYTES_PER_TURN
        try:
            while self._parts and self.unsent > end:
                self._send_first(self.unsent - end)
        except BlockingIOError:
            self._continue_when_writable()
        except OSError as error:
            self.close()
            self._done(error)
        else:
            if self._parts:
                self._continue_when_writable()
            else:
                self.close()
                self._done(None)

    def _send_first(self, max_bytes: int) -> None:
        """Send as much of the first part as the kernel takes. Raises BlockingIOError, OSError."""
        part, start = self._parts[0], self._sent_of_first
        if isinstance(part, FileSlice):
            sent = part.send(self._socket.fileno(), start, max_bytes)
        else:
            sent = self._socket.send(memoryview(part)[start:], _MORE if len(self._parts) > 1 else 0)
        self.unsent -= sent
        self._sent_of_first = start + sent
        if start + sent == len(part):
            self._parts.popleft()
            self._sent_of_first = 0

    def _continue_when_writable(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            # The transport watches its own descriptor: this is a duplicate of it for the same socket.
            self._loop.add_writer(self._socket, self.send)

    def close(self) -> None:
        """Stop sending without a call of `done`."""
        if self._is_waiting:
            self._is_waiting = False
            self._loop.remove_writer(self._socket)
        self._parts.clear()
        self._socket.close()
