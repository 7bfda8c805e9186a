"""A client connection: frames in, responses out in order, one request at a time.

As Kafka mutes a socket while its request is processed, the next frame of a connection is handled after the response to
the previous one. Pipelined requests wait in the receive buffer, and a full one stops reading. Three states decide, each
false while nothing hinders the next request: `ServerState` (protocol/server_connection.py), `Output` and `Input`.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping
from enum import Enum, IntEnum, auto
from typing import TYPE_CHECKING, Any, cast

from ...common.room_logger import room_logger
from ...protocol.apis import ApiKey
from ...protocol.errors import ProtocolError
from ...protocol.frames import LENGTH_SIZE, FrameReader
from ...protocol.server_connection import ON_ANSWER, SERVING, ServerEvent, ServerState
from ..config.listeners import is_this_machine
from ..security.session import Session
from .output import FileSender, PacedWriter, has_file_slices, read_into_memory
from .request_turn import API_KEY_LOW_BYTE, MAX_JOINED_BYTES, MAX_KEPT_BYTES, MIN_PRODUCE_BYTES

if TYPE_CHECKING:
    from ..config.listeners import ListenerConfig
    from .request_turn import RequestTurn
    from .socket_server import SocketServer

logger = room_logger("network")

READ_AHEAD_BYTES = 1 << 20
"""Received and not yet handled bytes of a busy connection beyond which reading stops."""
JOIN_BYTES = 1 << 16
"""Responses up to this size are copied into one buffer, which costs less than a vector of small writes."""
STALL_BYTES = 1 << 18
"""A client that takes less than this between two checks, and at most half of the unsent bytes, has stalled."""

WRITING_APIS = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.OFFSET_COMMIT,
        ApiKey.JOIN_GROUP,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    }
)
"""The requests that append to logs, and wait in the `WriteQueue` while the disk is slow. Heartbeats and fetches rarely
append, and must not wait: sessions would expire."""

_HANDLING, _CLOSING = SERVING[ServerState.OPEN][ServerEvent.REQUEST], ServerState.CLOSING

Handle = Callable[["Connection", memoryview, int, int], None]
"""Handles the frame at [start, end) of the view, and calls `send`, `skip` or `close` then or later."""


class Output(IntEnum):
    """The progress of the responses of a connection. At most one response waits for a slow client."""

    FREE = 0
    """Everything is sent."""
    UNSENT = 1
    """The transport holds bytes that the client has not taken."""
    QUEUED = 2
    """The transport holds bytes, and a response with file slices waits for them."""
    SENDING = 3
    """A `FileSender` sends a response with file slices past the transport, whose buffer is empty."""


class OutputEvent(Enum):
    """The events that change an `Output`."""

    PAUSED = auto()
    """The transport has bytes that the kernel did not take."""
    RESUMED = auto()
    """The kernel took them."""
    FILES = auto()
    """A response with file slices is to be sent."""
    SENT = auto()
    """The kernel took that response, or sending failed."""


OUTPUT: dict[Output, dict[OutputEvent, Output]] = {
    Output.FREE: {
        OutputEvent.PAUSED: Output.UNSENT,
        OutputEvent.RESUMED: Output.FREE,
        OutputEvent.FILES: Output.SENDING,
    },
    Output.UNSENT: {
        OutputEvent.PAUSED: Output.UNSENT,
        OutputEvent.RESUMED: Output.FREE,
        OutputEvent.FILES: Output.QUEUED,
    },
    Output.QUEUED: {
        OutputEvent.PAUSED: Output.QUEUED,
        OutputEvent.RESUMED: Output.SENDING,
    },
    Output.SENDING: {
        OutputEvent.SENT: Output.FREE,
    },
}
"""State -> event -> next state. A missing event cannot happen in that state."""


class Input(IntEnum):
    """Whether a connection is read."""

    READING = 0
    FULL = 1
    """A request is handled, and `READ_AHEAD_BYTES` of further requests are received. Or the client is muted and has
    sent requests, which are handled as in Kafka even if the client closes its connection."""
    OUT_OF_MEMORY = 2
    """Part of a large frame is received, and the `MemoryPool` has no room for the rest."""
    ENDED = 3
    """The client has closed its side while its requests waited in the `WriteQueue`. The connection is closed after the
    responses to all complete requests."""


def _has_tls(transport: asyncio.Transport) -> bool:
    """Return whether the transport encrypts, so that file slices cannot be sent past it."""
    return transport.get_extra_info("sslcontext") is not None


class Connection(asyncio.BufferedProtocol):
    """One client's connection, created for the loop by the socket server and used on its thread only.

    `handle` gets one frame at a time and must not keep its view.
    """

    __slots__ = (
        "_batcher",
        "_descriptor",
        "_file_response",
        "_handle",
        "_input",
        "_is_processing",
        "_is_request_kept",
        "_is_writers_turn",
        "_loop",
        "_muted",
        "_on_taken",
        "_out",
        "_out_bytes",
        "_output",
        "_paced",
        "_reader",
        "_sender",
        "_server",
        "_state",
        "_transport",
        "_turn",
        "_unsent",
        "_write_queue",
        "frame_started",
        "is_local",
        "is_waiting_to_write",
        "last_active",
        "last_request",
        "on_close",
        "on_lost",
        "session",
        "write_stalled",
    )

    def __init__(
        self,
        server: SocketServer,
        listener: ListenerConfig,
        handle: Handle,
        reader: FrameReader,
        turn: RequestTurn | None = None,
    ) -> None:
        """`turn` handles small produce requests together with requests of other connections, in place of `handle`."""
        self._server = server
        self._handle = handle
        self._loop = server.loop
        self._batcher = server.response_batcher
        self._write_queue = server.write_queue
        self._descriptor = -1
        """The socket's descriptor if small responses may be sent past the transport."""
        self._reader = reader
        self._turn = turn
        self._transport: asyncio.Transport | None = None
        """None before the connection is made and after it is lost."""
        self._state = ServerState.OPEN
        self._output = Output.FREE
        self._input = Input.READING
        self._file_response: tuple[list[Any], int] | None = None
        """The response of `Output.QUEUED`, and its size."""
        self._sender: FileSender | None = None
        """The sender of `Output.SENDING`. The request counts as being handled until it is done."""
        self._paced: PacedWriter | None = None
        """The writer to a transport with TLS."""
        self._unsent = 0
        """Unsent bytes at `write_stalled`."""
        self._out: list[Any] = []
        self._out_bytes = 0
        self._muted: asyncio.TimerHandle | None = None
        self._on_taken: Callable[[], None] | None = None
        """Called once when the client has received the response, or the connection is closed."""
        self._is_request_kept = False
        """Whether the bytes of the current request are kept until its response."""
        self._is_processing = False
        """Whether `_process` is running; it continues with the next request without a call."""
        self._is_writers_turn = False
        """Whether the next request has waited in the `WriteQueue`, and may append now."""
        self.is_waiting_to_write = False
        """Whether the next request waits in the `WriteQueue`. The connection is muted then."""
        self.session = Session("", listener)
        self.is_local = False
        """Whether the client runs on this machine."""
        self.on_close: Callable[[], None] | None = None
        self.on_lost: Callable[[], None] | None = None
        self.last_request: Any = None
        """The last request, if its handler keeps it because later requests are often similar. Only the handler uses
        it."""
        self.last_active = self._loop.time()
        """Loop time of the last received byte, or since which bytes are read again or a long response is taken."""
        self.frame_started: float | None = None
        """Loop time at which the frame that is still incomplete began to arrive."""
        self.write_stalled: float | None = None
        """Loop time since which the client has not taken the bytes that were sent to it."""

    # -- called by the loop ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = stream = cast(asyncio.Transport, transport)
        # Pause as soon as one byte is unsent. Plain transports of asyncio and uvloop pause above the limit. TLS
        # transports pause at the limit, and with 0 they would always pause.
        stream.set_write_buffer_limits(high=1 if _has_tls(stream) else 0)
        if _has_tls(stream):
            self._paced = PacedWriter(stream)
            self._turn = None
        elif (descriptor := self.fileno()) >= 0:
            self._descriptor = descriptor
            self._batcher.add_connection(descriptor, stream)
        peer, own = stream.get_extra_info("peername"), stream.get_extra_info("sockname")
        if isinstance(peer, tuple):
            self.session.client_host = host = str(peer[0])
            self.session.client_port = int(peer[1])
            self.is_local = is_this_machine(host, str(own[0]) if isinstance(own, tuple) else "")
        if not self._server.admit(self):
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_event(ServerEvent.LOST)
        self._batcher.remove_connection(self._descriptor)
        self._transport = self._paced = None
        self.last_request = None  # it refers to this connection
        self._notify_taken()
        self._stop_sending()
        self._reader.close()
        self._out.clear()
        self._server.remove(self)
        if self._muted is not None:
            self._muted.cancel()
        if self.on_close is not None:
            self.on_close()
            self.on_close = None
        if self.on_lost is not None:
            self.on_lost()
            self.on_lost = None

    @property
    def get_buffer(self) -> Callable[[int], memoryview]:
        """The reader's own method. uvloop reads this once per connection, so that a read costs no call here: with a
        method that delegates, each request took 80 ns longer (0.5 %)."""
        return self._reader.buffer

    def buffer_updated(self, nbytes: int) -> None:
        reader = self._reader
        reader.pending += nbytes
        self.last_active = now = self._loop.time()
        turn = self._turn
        if turn is not None and reader.private is None:
            if (
                nbytes >= MIN_PRODUCE_BYTES
                and not reader.data[reader.start + API_KEY_LOW_BYTE]
                and not self._state
                and not self._output
            ):
                # The first request of a turn is often the only one, and would gain nothing by waiting. A request is
                # the first if the time of uvloop, which advances at most once per turn, has changed since the last
                # request, and no request and no response wait for the end of the turn.
                is_first = now != turn.last_request and not turn.connections and not self._batcher.has_waiting
                turn.last_request = now
                if nbytes <= MAX_KEPT_BYTES and not is_first and self._batcher.is_batching:
                    turn.add(self, nbytes)
                    return
                if reader.has_second_frame:
                    turn.finish()
                    turn.handle((self,))
                    return
            if turn.connections:
                turn.finish()  # this connection may take the shared buffer, which has the bytes of the others
        self._process()

    def eof_received(self) -> bool:
        turn = self._turn
        if turn is not None and turn.connections:
            turn.finish()  # this connection's requests may wait there
        # The transport closes itself as soon as its buffer is empty: a response that waits elsewhere would be lost.
        self._leave_batcher()
        if self.is_waiting_to_write and self._paced is None:
            self._input = Input.ENDED
            return True
        while self.is_waiting_to_write:
            # A transport with TLS cannot remain open. The requests would be lost.
            self.continue_writing()
        return False

    def pause_writing(self) -> None:
        self._output = OUTPUT[self._output][OutputEvent.PAUSED]
        self._note_unsent()

    def resume_writing(self) -> None:
        self._output = OUTPUT[self._output][OutputEvent.RESUMED]
        if self._state >= _CLOSING:
            return
        self.write_stalled = None
        self.last_active = self._loop.time()
        if self._paced is not None:
            self._write_paced()
        if self._output is Output.UNSENT or self._state >= _CLOSING:
            return
        self._notify_taken()
        if self._file_response is not None:
            self._send_queued()
        elif not self._is_processing:
            self._process()

    # -- called by the turn ----------------------------------------------------------------------------------------

    def add_received_part(self, parts: list[tuple[int, int]]) -> bool:
        """Add the bounds of the received bytes in `received`, if they may be handled now and are in the shared buffer.

        Return whether they are added. They are not if a frame in them may be larger than the connection allows, or if
        `handle` would refuse requests because the client's session has expired.
        """
        reader = self._reader
        pending = reader.pending
        if self._state or self._output or reader.private is not None or not 0 < pending <= reader.max_size:
            return False
        if not self._permits_requests:
            return False
        start = reader.start
        parts.append((start, start + pending))
        return True

    @property
    def received(self) -> memoryview:
        """The buffer with the received bytes."""
        return self._reader.data

    def take_responses(self, position: int, responses: bytes | None) -> None:
        """Send the responses to the requests before `position` of `received`; None: `send` gets the only one later."""
        if self._state >= _CLOSING:
            return
        self._reader.skip_to(position)
        if responses is None:
            assert not self._state, "no other request is being handled"
            self._on_event(ServerEvent.REQUEST)
            return
        self._out.append(responses)
        self._out_bytes += len(responses)
        if not self._reader.pending:
            self._write_responses(more_responses_follow=True)

    @property
    def has_several_requests(self) -> bool:
        """Whether more bytes are received than the first request has."""
        return self._reader.has_second_frame

    def handle_received(self) -> None:
        """Handle the received requests one after another."""
        if self._reader.pending:
            self._process()

    # -- called by the queue of writers ----------------------------------------------------------------------------

    def continue_writing(self) -> None:
        """Handle the request that has waited in the `WriteQueue`, and later requests that need not wait."""
        if self.is_waiting_to_write:
            self._end_waiting()
            self._is_writers_turn = True
            try:
                self._process()
            finally:
                self._is_writers_turn = False

    @property
    def joinable_requests(self) -> memoryview | None:
        """The received bytes if they wait in the `WriteQueue` and `add_received_part` would permit them, else None."""
        reader = self._reader
        is_joinable = (
            self.is_waiting_to_write
            and self._state is ServerState.MUTED
            and self._muted is None
            and self._turn is not None
            and not self._output
            and 0 < reader.pending <= min(MAX_JOINED_BYTES, reader.max_size)
            and self._permits_requests
        )
        return reader.pending_bytes if is_joinable else None

    def take_joint_responses(self, size: int, responses: bytes | None) -> None:
        """Take the responses to the first `size` bytes of `joinable_requests`, as `take_responses`."""
        self._end_waiting()
        if self._state >= _CLOSING:
            return
        reader = self._reader
        reader.skip_to(reader.start + size)
        if responses is None:
            assert not self._state, "no other request is being handled"
            self._on_event(ServerEvent.REQUEST)
        else:
            self._out.append(responses)
            self._out_bytes += len(responses)

    def handle_after_joint(self) -> None:
        """Send the responses of `take_joint_responses`, and handle the next requests."""
        if self._state < _CLOSING:
            self._process()

    # -- called by handlers ----------------------------------------------------------------------------------------

    def send(self, parts: list[Any], size: int) -> None:
        """Send the response to the current request, as parts of `size` bytes in total, and handle the next request."""
        if self._state >= _CLOSING:
            return
        if self._is_request_kept:
            self._is_request_kept = False
            self._server.memory_pool.release(self)
        self._out += parts
        self._out_bytes += size
        if size > JOIN_BYTES and self._paced is None and has_file_slices(parts):
            self._send_files()
            return
        self._state = ON_ANSWER[self._state]
        self.on_close = None
        if self._is_processing:
            return
        reader = self._reader
        if reader.pending or reader.private is not None or self._input or self.frame_started is not None:
            self._process()
        elif self._out:  # no byte of a further request is received
            self._write_responses()

    def when_taken(self, callback: Callable[[], None]) -> None:
        """Call back once the client has received the last response, or the connection is closed."""
        self._on_taken = callback
        self._notify_taken()

    def send_beginning(self, data: bytes) -> bool:
        """Send the first bytes of the current response; `send` gets the rest. Return whether the connection is open."""
        if self._transport is None or self._state >= _CLOSING:
            return False
        self._flush()
        self._batcher.flush(self._descriptor)
        self._transport.write(data)
        return self._state < _CLOSING

    def skip(self) -> None:
        """Handle the next request without a further response to the current request."""
        self.send([], 0)

    def freeze(self) -> None:
        """Handle no further request after the current one: the broker is about to stop."""
        self._on_event(ServerEvent.FREEZE)

    def mute(self, seconds: float) -> None:
        """Handle no further request for this time after the current one (KIP-219)."""
        if self._state < _CLOSING:
            self._on_event(ServerEvent.MUTE)
            self._muted = self._loop.call_later(seconds, self._unmute)

    def close_after(self, seconds: float) -> None:
        """Close after this time without a response to the current request, and handle no further one."""
        if self._state < _CLOSING:
            self._on_event(ServerEvent.FREEZE)
            if self._muted is not None:
                self._muted.cancel()
            self._muted = self._loop.call_later(seconds, self.close)

    def enlarge_send_buffer(self, size: int) -> None:
        """Use a send buffer of this size, unless the system determines the size, or TLS limits the unsent bytes."""
        stream = self._transport.get_extra_info("socket") if self._transport is not None else None
        if stream is not None and self._paced is None:
            self._server.enlarge_send_buffer(stream, size)

    def keep_request(self) -> None:
        """Count the bytes of the current request until its response: the handler keeps them."""
        self._is_request_kept = True

    def keep_memory(self) -> Callable[[], None]:
        """Count the memory of the current request until the returned function is called, as `MemoryPool.keep`."""
        return self._server.memory_pool.keep(self)

    def out_of_memory(self, what: str) -> None:
        """Close without sending, and log the reason; other connections are served."""
        self._server.log_out_of_memory(self, what)
        self.abort()

    def refuse(self, error: ProtocolError) -> None:
        """Close because of bytes that are not a legal request."""
        self._server.log_protocol_error(self, error)
        self.close()

    def close(self) -> None:
        """Send the responses that are ready, then close."""
        transport = self._transport
        self._file_response = None
        if self._sender is not None:
            # A client cannot parse bytes after a part of a response.
            self.abort()
        elif transport is not None and self._state < _CLOSING:
            self._flush()
            if self._paced is not None and self._state < _CLOSING:
                self._write_paced(even_if_paused=True)
            if self._state >= _CLOSING:
                return
            self._leave_batcher()
            self._on_event(ServerEvent.CLOSE)
            stalled = self.write_stalled
            self._note_unsent()
            self.write_stalled = stalled or self.write_stalled
            transport.close()

    def abort(self) -> None:
        """Close immediately and drop unsent bytes."""
        if self._transport is not None and self._state is not ServerState.CLOSED:
            self._on_event(ServerEvent.LOST)
            self._batcher.remove_connection(self._descriptor)
            self._stop_sending()
            self._transport.abort()

    def await_transport(self) -> None:
        """Handle no request before `set_transport`: the first request may arrive with the handshake."""
        self._on_event(ServerEvent.MUTE)

    def set_transport(self, transport: asyncio.Transport) -> None:
        """Begin to serve after a TLS handshake, unless the connection is lost."""
        self._on_event(ServerEvent.UNMUTE)
        if self._state is ServerState.OPEN:
            self.connection_made(transport)
            if not self._state:
                self._process()

    @property
    def is_lost(self) -> bool:
        """Whether the connection is closed."""
        return self._transport is None

    # -- called by the socket server -------------------------------------------------------------------------------

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The client's verified certificate, in the form of Python's ssl module; None without one."""
        return self._transport.get_extra_info("peercert") if self._transport is not None else None

    def fileno(self) -> int:
        """Return the socket's descriptor, -1 without one."""
        stream = self._transport.get_extra_info("socket") if self._transport is not None else None
        return stream.fileno() if stream is not None else -1

    def join_turns(self, turn: RequestTurn | None) -> None:
        """Handle later small produce requests in `turn`, as after the constructor: the client is authenticated."""
        if self._paced is None:
            self._turn = turn

    def set_max_frame_sizes(self, produce_bytes: int, other_bytes: int) -> None:
        """Set the largest size of Produce requests, and that of all other requests."""
        self._reader.max_size, self._reader.max_other_size = produce_bytes, other_bytes

    def stalled_for(self, now: float) -> float:
        """Return the seconds for which the client has taken few of its unsent bytes; 0 if all are sent."""
        if self.write_stalled is None:
            return 0.0
        unsent = self._unsent_bytes()
        # The number grows when a request that was being handled has been answered since.
        if unsent > self._unsent or self._unsent - unsent >= min(STALL_BYTES, self._unsent // 2 + 1):
            self.write_stalled = now
            self._unsent = unsent
        return now - self.write_stalled

    def receiving_for(self, now: float) -> float:
        """Return the seconds for which a frame has been arriving; 0 without one, or while it waits for memory."""
        return 0.0 if self.frame_started is None or self._input is Input.OUT_OF_MEMORY else now - self.frame_started

    @property
    def large_frame(self) -> int:
        """Bytes of the large frame that is arriving; 0 without one."""
        return self._reader.large_frame

    def resume_receiving(self) -> None:
        """Read the rest of a large frame: the `MemoryPool` has room for it."""
        if self._input is Input.OUT_OF_MEMORY and self._transport is not None and self._state < _CLOSING:
            self._input = Input.READING
            self.last_active = self.frame_started = self._loop.time()
            self._transport.resume_reading()

    # -- private ---------------------------------------------------------------------------------------------------

    def _notify_taken(self) -> None:
        callback = self._on_taken
        if callback is not None and (self._transport is None or not (self._out or self._output)):
            self._on_taken = None
            callback()

    def _on_event(self, event: ServerEvent) -> None:
        self._state = SERVING[self._state][event]

    def _process(self) -> None:
        """Handle frames until a response is delayed, the bytes end, or the client does not take its responses."""
        reader = self._reader
        handle = self._handle
        write_queue = self._write_queue
        start = end = 0
        self._is_processing = True
        try:
            while reader.pending and not self._state and not self._output:
                if write_queue.must_wait and self._wait_if_disk_is_slow():
                    break
                bounds = reader.next_frame()
                if bounds is None:
                    break
                start, end = bounds
                # As `_on_event(REQUEST)`, without two look-ups per request: the loop's condition holds only in OPEN.
                self._state = _HANDLING
                handle(self, reader.data, start, end)
                if self._out_bytes > JOIN_BYTES:
                    self._flush()
            if (reader.pending or reader.private is not None) and self._state < _CLOSING:
                reader.settle()
        except ProtocolError as error:
            self.refuse(error)
        except MemoryError as error:
            self.out_of_memory(str(error) or f"no memory to handle a request of {end - start} bytes")
        finally:
            self._is_processing = False
        if self._state >= _CLOSING:
            reader.close()
            return
        if self._out:
            self._write_responses()
        if self._on_taken is not None:
            self._notify_taken()
        if reader.pending or self._input or self.frame_started is not None:
            self._update_reading()

    def _wait_if_disk_is_slow(self) -> bool:
        """Add this connection to the `WriteQueue` if the next request is complete and appends.

        Return whether it was added.
        """
        if self._is_writers_turn:
            self._is_writers_turn = False
            return False
        reader = self._reader
        if (
            not reader.has_complete_frame
            or reader.data[reader.start + LENGTH_SIZE]
            or reader.data[reader.start + API_KEY_LOW_BYTE] not in WRITING_APIS
            or not self._permits_requests
        ):
            return False
        self.is_waiting_to_write = True
        self._on_event(ServerEvent.MUTE)
        self._write_queue.wait(self)
        return True

    def _end_waiting(self) -> None:
        self.is_waiting_to_write = False
        self.last_active = self._loop.time()
        if self._muted is None:
            self._on_event(ServerEvent.UNMUTE)

    @property
    def _permits_requests(self) -> bool:
        """Whether the client is authenticated, and its session has not expired."""
        authentication = self.session.authentication
        return authentication is None or authentication.permits_requests

    def _flush(self) -> None:
        """Write the collected responses, if there are any, unless the connection is closing."""
        if self._out and self._state < _CLOSING:
            self._write_responses()

    def _write_responses(self, *, more_responses_follow: bool = False) -> None:
        transport, out, size = self._transport, self._out, self._out_bytes
        if transport is None:
            return
        self._out = []
        self._out_bytes = 0
        if self._paced is not None and (size > JOIN_BYTES or self._paced.unsent or self._output):
            self._paced.add(out)
            self._write_paced()
            return
        if self._batcher.is_batching and self._descriptor >= 0:
            if size <= JOIN_BYTES and not self._output:
                self._batcher.add(self._descriptor, b"".join(out), more_responses_follow=more_responses_follow)
                return
            self._batcher.flush(self._descriptor)
        if size <= JOIN_BYTES:
            transport.write(out[0] if len(out) == 1 else b"".join(out))
        else:
            transport.writelines(out)
            # In asyncio of Python 3.12.0-3.12.8 and 3.13.0-3.13.1, `writelines` never pauses writing (CVE-2024-12254).
            if not transport.is_closing():
                transport.set_write_buffer_limits(high=0)

    def _leave_batcher(self) -> None:
        """Write the waiting response, and all later ones, to the transport immediately."""
        self._batcher.flush(self._descriptor)
        self._batcher.remove_connection(self._descriptor)
        self._descriptor = -1

    def _write_paced(self, *, even_if_paused: bool = False) -> None:
        paced = self._paced
        try:
            while paced is not None and paced.unsent and (even_if_paused or not self._output):
                paced.write()
        except OSError as error:
            self._abort_mid_response(error)

    def _send_files(self) -> None:
        """Send the collected responses, the last of which has file slices, when the transport is empty."""
        self._batcher.flush(self._descriptor)
        self._file_response = self._out, self._out_bytes
        self._out, self._out_bytes = [], 0
        self._output = OUTPUT[self._output][OutputEvent.FILES]
        if self._output is Output.SENDING:
            self._send_queued()

    def _send_queued(self) -> None:
        """Send the response that waited for the transport to be empty, and then handle the next request."""
        transport = self._transport
        assert transport is not None and self._file_response is not None, "a queued response of an open connection"
        out, size = self._file_response
        self._file_response = None
        stream = transport.get_extra_info("socket")
        try:
            if stream is None:
                self._out, self._out_bytes = read_into_memory(out), size
                self._output = OUTPUT[self._output][OutputEvent.SENT]
                self._flush()
                self.skip()
                return
            self._sender = FileSender(stream, out, size, self._loop, self._files_sent)
        except OSError as error:
            self._files_sent(error)
            return
        self._sender.send()
        if self._sender is not None:
            self._note_unsent()

    def _files_sent(self, error: OSError | None) -> None:
        """Continue after the kernel has taken a response with file slices, or close if sending failed."""
        self._sender = None
        self._output = OUTPUT[self._output][OutputEvent.SENT]
        if error is None:
            self.write_stalled = None
            self.last_active = self._loop.time()
            self.skip()
        else:
            self._abort_mid_response(error)

    def _abort_mid_response(self, error: OSError) -> None:
        """Close immediately: the rest of a response cannot be sent, and further bytes would have no meaning."""
        if not isinstance(error, ConnectionError) and error.errno != errno.ENOTCONN:
            host = self.session.client_host
            logger.warning("closed the connection from %s in the middle of a response: %s", host, error)
        self.abort()

    def _unmute(self) -> None:
        self._muted = None
        if self.is_waiting_to_write:
            return  # `continue_writing` follows
        self._on_event(ServerEvent.UNMUTE)
        if not self._state and not self._is_processing:
            self._process()

    def _stop_sending(self) -> None:
        self._file_response = None
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    def _note_unsent(self) -> None:
        """Note the time and the number of unsent bytes, for `stalled_for`."""
        self.write_stalled = self._loop.time()
        self._unsent = self._unsent_bytes()

    def _unsent_bytes(self) -> int:
        if self._sender is not None:
            return self._sender.unsent
        paced = self._paced.unsent if self._paced is not None else 0
        return paced + (self._transport.get_write_buffer_size() if self._transport is not None else 0)

    def _update_reading(self) -> None:
        """Stop or resume reading according to pending bytes and memory; note when an incomplete frame began."""
        transport, reader = self._transport, self._reader
        if transport is None or self._state >= _CLOSING:
            return
        pending = reader.pending
        waiting = bool(self._state or self._output)
        wanted = Input.READING
        if waiting:
            if not self._is_request_kept and not reader.large_frame:
                # The current request waits, for example for other replicas, and its bytes are written. Counting them
                # would block the requests that it waits for.
                self._server.memory_pool.release(self)
            if pending >= READ_AHEAD_BYTES or (pending and self._state is ServerState.MUTED):
                wanted = Input.FULL
        elif self._input is Input.ENDED:
            self.close()
            return
        elif not self._server.memory_pool.try_allocate(self):
            wanted = Input.OUT_OF_MEMORY
        if self._input is not Input.ENDED:
            if bool(wanted) != bool(self._input):
                (transport.pause_reading if wanted else transport.resume_reading)()
            self._input = wanted
        if waiting or not pending:
            self.frame_started = None
        elif self.frame_started is None:
            self.frame_started = self.last_active
