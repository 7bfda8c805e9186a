"""Requests that arrive in one turn of the event loop, and are handled together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ...protocol.frames import FIRST_PRIVATE_SIZE, BufferPool

if TYPE_CHECKING:
    from ..runtime.write_queue import WriteQueue, Writer
    from .connection import Connection
    from .output import ResponseBatcher

MAX_KEPT_BYTES = FIRST_PRIVATE_SIZE - 1
"""The maximum of received bytes of a connection that wait for the end of the turn. `FrameReader` copies this number of
bytes into a small private buffer, and never takes the shared buffer, which has the bytes of other connections."""
MIN_PRODUCE_BYTES = 80
"""The minimum size of a produce request with a record."""
API_KEY_LOW_BYTE = 5
"""Position in a frame, with its length prefix, of the low byte of the API key, which is 0 only for Produce."""

MAX_JOINED_BYTES = 1 << 16
"""The maximum of received bytes of a connection whose requests are handled together after they have waited in the
`WriteQueue`."""
MAX_COPIED_BYTES = 1 << 20
"""The maximum of bytes of all these connections together."""
BEFORE_GROUP = -1
"""In place of a position: the next group has not been appended."""

HandleTogether: TypeAlias = (
    "Callable[[Sequence[Connection], memoryview, list[tuple[int, int]], bool], Iterator[tuple[int, int, bytes | None]]]"
)
"""Handles requests at the beginning of parts `[start, end)` of a buffer, one part per connection. Yields the number of
a part, the position after its last handled request, and the responses: None for one request, whose response is sent
later by `Connection.send`. The other requests are handled one by one.

If the last parameter is true, the iterator also yields the first part of each group with `BEFORE_GROUP`, before the
group is appended. If it is false, no group is appended when `WriteQueue.must_wait` is true.
"""


class RequestTurn:
    """The connections without TLS whose small requests arrived in this turn of the loop. Owned by the socket server;
    used on the event loop's thread only.

    Many clients that produce single records send their requests at the same time. Handled together, their batches
    are checked by one call and written by one system call (`KafkaApis.handle_together`). The bytes remain in the shared
    receive buffer until the end of the turn; a connection whose state changes before that handles its own requests.
    """

    __slots__ = ("_batcher", "_handle_together", "_loop", "_pool", "_write_queue", "connections", "last_request")

    def __init__(
        self,
        pool: BufferPool,
        loop: asyncio.AbstractEventLoop,
        batcher: ResponseBatcher,
        handle_together: HandleTogether,
        write_queue: WriteQueue,
    ) -> None:
        self._batcher = batcher
        self._pool = pool
        self._loop = loop
        self._handle_together = handle_together
        self._write_queue = write_queue
        write_queue.join = self.join
        self.last_request = 0.0
        """Loop time of the last produce request."""
        self.connections: list[Connection] = []
        """The connections whose requests wait for the end of the turn."""

    def add(self, connection: Connection, received: int) -> None:
        """Handle the `received` bytes of a connection, which are at the start of the pool's window, later in this turn.

        It has no other pending bytes, and at most `MAX_KEPT_BYTES`.
        """
        if not self.connections:
            self._loop.call_soon(self.finish)
        self.connections.append(connection)
        pool = self._pool
        pool.received += received
        if pool.received * 2 > pool.size:
            self.finish()

    def finish(self) -> None:
        """Handle all requests that wait."""
        connections = self.connections
        if connections:
            self.connections = []
            self._pool.received = 0
            if len(connections) > 1 or connections[0].has_several_requests:
                self.handle(connections)
            else:
                self._handle_received(connections[0])
            # Otherwise the responses would wait for another turn.
            self._batcher.send_waiting()

    def handle(self, connections: Sequence[Connection]) -> None:
        """Handle requests of connections whose bytes are in one buffer: together if possible, then one by one."""
        parts: list[tuple[int, int]] = []
        together: list[Connection] = []
        if not self._write_queue.must_wait:
            together = [connection for connection in connections if connection.add_received_part(parts)]
        if together:
            try:
                for number, end, responses in self._handle_together(together, together[0].received, parts, False):
                    together[number].take_responses(end, responses)
            except Exception as error:  # noqa: BLE001 - other connections are served
                # Their records may be in the log: if the requests were handled again, records would be duplicated.
                self._abort(together, error)
        for connection in connections:
            self._handle_received(connection)

    def join(self, writers: Collection[Writer], done: set[Writer]) -> Generator[Writer, None, None]:
        """Handle small requests that have waited in the `WriteQueue` together, as its `join`.

        The requests of the groups that are not appended remain in the buffers of their connections.
        """
        self._batcher.send_waiting()  # the responses would wait for the first write
        connections: list[Connection] = []
        parts: list[tuple[int, int]] = []
        data = bytearray()
        for writer in writers:
            requests = getattr(writer, "joinable_requests", None)
            if requests is not None:
                if len(data) + len(requests) > MAX_COPIED_BYTES:
                    break
                connections.append(writer)  # type: ignore[arg-type]
                parts.append((len(data), len(data) + len(requests)))
                data += requests
        if len(parts) < 2 and not (connections and connections[0].has_several_requests):
            return
        joined: list[Connection] = []
        try:
            for number, end, responses in self._handle_together(connections, memoryview(data), parts, True):
                connection = connections[number]
                if end == BEFORE_GROUP:
                    self._handle_rest(joined)
                    yield connection
                else:
                    assert connection not in done, "no later group has an earlier connection"
                    done.add(connection)
                    connection.take_joint_responses(end - parts[number][0], responses)
                    joined.append(connection)
        except Exception as error:  # noqa: BLE001 - other connections are served
            # Their records may be in the log, as above.
            failed = [connection for connection in connections if connection not in done]
            done.update(failed)
            self._abort(failed, error)
        finally:
            self._handle_rest(joined)

    def _handle_rest(self, joined: list[Connection]) -> None:
        """Handle the requests that follow the ones handled together, and send the responses."""
        while joined:
            connection = joined.pop(0)
            try:
                connection.handle_after_joint()
            except Exception as error:  # noqa: BLE001 - the requests of the other connections are handled
                self._abort((connection,), error)
        self._batcher.send_waiting()

    def _handle_received(self, connection: Connection) -> None:
        try:
            connection.handle_received()
        except Exception as error:  # noqa: BLE001 - the requests of the other connections are handled
            self._abort((connection,), error)

    def _abort(self, connections: Iterable[Connection], error: Exception) -> None:
        """Close connections because of an error in their requests, as the event loop does after `buffer_updated`."""
        message = "closed connections because of an error in their requests"
        self._loop.call_exception_handler({"message": message, "exception": error})
        for connection in connections:
            connection.abort()
