"""One client connection: frames in, responses out in order, one request at a time.

As Kafka mutes a socket while its request is being processed, the next frame of a connection is not looked at before the
previous one was answered; what a client pipelines stays in the receive buffer, and a full one stops reading. `SERVING`
says whose turn it is, `OUTPUT` what the transport is doing: a request is looked at only while both states are false.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from ...protocol.errors import ProtocolError
from ...protocol.frames import FrameReader
from ...protocol.room_logger import room_logger
from ...protocol.server_connection import ON_ANSWER, SERVING, ServerEvent, ServerState
from ..config.listeners import is_this_machine
from ..security.session import Session
from .file_sender import FileSender, has_file_slices, read_into_memory
from .paced_writer import PacedWriter
from .transport_states import OUTPUT, Input, Output, OutputEvent, has_tls, pause_at

if TYPE_CHECKING:
    from ..config.listeners import ListenerConfig
    from .socket_server import SocketServer

logger = room_logger("network")

READ_AHEAD_BYTES = 1 << 20
"""Received and not yet handled bytes of a busy connection beyond which reading stops."""
JOIN_BYTES = 1 << 16
"""Answers up to this size are copied into one buffer: cheaper than a vector of small writes."""
STALL_BYTES = 1 << 18
"""A client that takes less than this between two looks, and no more than half of what is left, has stalled."""

_HANDLING, _CLOSING = ServerState.HANDLING, ServerState.CLOSING

Handle = Callable[["Connection", memoryview, int, int], None]
"""Handle the frame at [start, end) of the view; answer by `send`, `skip` or `close`, now or later."""


class GetBuffer(Protocol):
    """Says where a transport is to put the next bytes."""

    def __call__(self, sizehint: int) -> memoryview: ...


class Connection(asyncio.BufferedProtocol):
    """Loop-thread only. `handle` is called with one frame at a time and must not keep the view."""

    __slots__ = (
        "_box",
        "_descriptor",
        "_file_answer",
        "_handle",
        "_input",
        "_is_processing",
        "_loop",
        "_muted",
        "_out",
        "_out_bytes",
        "_output",
        "_paced",
        "_reader",
        "_sender",
        "_server",
        "_state",
        "_transport",
        "_unsent",
        "frame_started",
        "get_buffer",
        "is_local",
        "last_active",
        "on_close",
        "session",
        "write_stalled",
    )
    get_buffer: GetBuffer
    """The reader's own method, as it is called for each piece that comes."""

    def __init__(self, server: SocketServer, listener: ListenerConfig, handle: Handle, reader: FrameReader) -> None:
        self._server = server
        self._handle = handle
        self._loop = server.loop
        self._box = server.answers
        self._descriptor = -1
        """That of the socket, if small answers may be sent past the transport."""
        self._reader = reader
        self.get_buffer = reader.buffer
        self._transport: asyncio.Transport | None = None
        """None before the connection is made and after it is lost."""
        self._state = ServerState.OPEN
        self._output = Output.FREE
        self._input = Input.READING
        self._file_answer: tuple[list[Any], int] | None = None
        """The answer of `Output.QUEUED`, and its size."""
        self._sender: FileSender | None = None
        """That of `Output.SENDING`. The request counts as being handled until it is done."""
        self._paced: PacedWriter | None = None
        """Writes to a transport with TLS."""
        self._unsent = 0
        self._out: list[Any] = []
        self._out_bytes = 0
        self._muted: asyncio.TimerHandle | None = None
        self._is_processing = False
        """Whether `_process` is running; it goes on with the next request by itself."""
        self.session = Session("", listener)
        self.is_local = False
        """Whether the client runs on this machine."""
        self.on_close: Callable[[], None] | None = None
        self.last_active = self._loop.time()
        """Loop time of the last received byte, or since when bytes are read again, or a long answer has been taken."""
        self.frame_started: float | None = None
        """Loop time at which the frame that is still incomplete began to arrive."""
        self.write_stalled: float | None = None
        """Loop time since which the client has not taken what was sent to it."""

    # -- what the loop calls ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = stream = cast(asyncio.Transport, transport)
        stream.set_write_buffer_limits(high=pause_at(stream))
        if has_tls(stream):
            self._paced = PacedWriter(stream)
        elif (descriptor := self.fileno()) >= 0:
            self._descriptor = descriptor
            self._box.open(descriptor, stream)
        peer, own = stream.get_extra_info("peername"), stream.get_extra_info("sockname")
        if isinstance(peer, tuple):
            self.session.client_host = host = str(peer[0])
            self.session.client_port = int(peer[1])
            self.is_local = is_this_machine(host, str(own[0]) if isinstance(own, tuple) else "")
        if not self._server.admit(self):
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._turn(ServerEvent.LOST)
        self._box.close(self._descriptor)
        self._transport = self._paced = None
        self._stop_sending()
        self._reader.close()
        self._out.clear()
        self._server.forget(self)
        if self._muted is not None:
            self._muted.cancel()
        if self.on_close is not None:
            self.on_close()
            self.on_close = None

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.pending += nbytes
        self.last_active = self._loop.time()
        self._process()

    def eof_received(self) -> bool:
        """The transport closes itself as soon as it is empty, so that it has to know what is to be sent."""
        self._leave_box()
        return False

    def pause_writing(self) -> None:
        self._output = OUTPUT[self._output][OutputEvent.PAUSED]
        self._watch_sending()

    def resume_writing(self) -> None:
        self._output = OUTPUT[self._output][OutputEvent.RESUMED]
        if self._state >= _CLOSING:
            return
        self.write_stalled = None
        self.last_active = self._loop.time()
        if self._paced is not None:
            self._write_paced()
        if self._output is Output.UNTAKEN or self._state >= _CLOSING:
            return
        if self._file_answer is not None:
            self._send_queued()
        elif not self._is_processing:
            self._process()

    # -- what the handler calls ------------------------------------------------------------------------------------

    def send(self, parts: list[Any], size: int) -> None:
        """Send the answer to the request in hand, as buffers of `size` bytes in all, and go on with the next."""
        if self._state >= _CLOSING:
            return
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
        elif self._out:  # nothing of a further request has come
            self._hand_over()

    def send_beginning(self, data: bytes) -> bool:
        """Send the first bytes of the answer to the request in hand; `send` gets the rest. False if nobody listens."""
        if self._transport is None or self._state >= _CLOSING:
            return False
        self._flush()
        self._box.empty(self._descriptor)
        self._transport.write(data)
        return self._state < _CLOSING

    def skip(self) -> None:
        """The request in hand wants no answer, or has it; go on with the next."""
        self.send([], 0)

    def freeze(self) -> None:
        """Answer the request in hand, if there is one, and look at no further one: the broker is about to stop."""
        self._turn(ServerEvent.FREEZE)

    def mute(self, seconds: float) -> None:
        """Look at no further request for that long once the one in hand is answered (KIP-219)."""
        if self._state < _CLOSING:
            self._turn(ServerEvent.MUTE)
            self._muted = self._loop.call_later(seconds, self._unmute)

    def refuse(self, error: ProtocolError) -> None:
        """Close because of bytes that are no legal request."""
        self._server.protocol_error(self, error)
        self.close()

    def close(self) -> None:
        """Send what is ready, then close."""
        transport = self._transport
        self._file_answer = None
        if self._sender is not None:
            # No client could make sense of what follows a part of an answer.
            self.abort()
        elif transport is not None and self._state < _CLOSING:
            self._flush()
            if self._paced is not None and self._state < _CLOSING:
                self._write_paced(even_if_paused=True)
            if self._state >= _CLOSING:
                return
            self._leave_box()
            self._turn(ServerEvent.CLOSE)
            stalled = self.write_stalled
            self._watch_sending()
            self.write_stalled = stalled or self.write_stalled
            transport.close()

    def abort(self) -> None:
        """Close at once, whatever is unsent."""
        if self._transport is not None and self._state is not ServerState.CLOSED:
            self._turn(ServerEvent.LOST)
            self._box.close(self._descriptor)
            self._stop_sending()
            self._transport.abort()

    def await_transport(self) -> None:
        """Look at nothing before `have_transport`: a client's first request may come right behind its handshake."""
        self._turn(ServerEvent.MUTE)

    def have_transport(self, transport: asyncio.Transport) -> None:
        """The connection is made, unless it is lost already."""
        self._turn(ServerEvent.UNMUTE)
        if self._state is ServerState.OPEN:
            self.connection_made(transport)
            if not self._state:
                self._process()

    @property
    def is_lost(self) -> bool:
        """Whether there is no connection any more."""
        return self._transport is None

    # -- what the server calls -------------------------------------------------------------------------------------

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The client's verified certificate, as Python's ssl module describes it; None without one."""
        return self._transport.get_extra_info("peercert") if self._transport is not None else None

    def fileno(self) -> int:
        """The number of the socket's file handle, -1 where there is none."""
        stream = self._transport.get_extra_info("socket") if self._transport is not None else None
        return stream.fileno() if stream is not None else -1

    def allow_frames(self, most_bytes: int, most_other_bytes: int) -> None:
        """Let Produce requests be so large from now on, and others so large."""
        self._reader.max_size, self._reader.max_other_size = most_bytes, most_other_bytes

    def stalled_for(self, now: float) -> float:
        """Seconds for which the client has taken next to nothing of what waits for it; 0 if nothing waits."""
        if self.write_stalled is None:
            return 0.0
        unsent = self._unsent_bytes()
        # It is more than it was when the answer to a request that was in hand has come since.
        if unsent > self._unsent or self._unsent - unsent >= min(STALL_BYTES, self._unsent // 2 + 1):
            self.write_stalled = now
            self._unsent = unsent
        return now - self.write_stalled

    def receiving_for(self, now: float) -> float:
        """Seconds for which a frame has been arriving; 0 if none is, or it has to wait."""
        return 0.0 if self.frame_started is None or self._input is Input.SHORT else now - self.frame_started

    @property
    def large_frame(self) -> int:
        """Bytes of the frame that is arriving; 0 if none is, or it is small."""
        return self._reader.large_frame

    def read_on(self) -> None:
        """There is memory again for the rest of the frame that is being received."""
        if self._input is Input.SHORT and self._transport is not None and self._state < _CLOSING:
            self._input = Input.READING
            self.last_active = self.frame_started = self._loop.time()
            self._transport.resume_reading()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _turn(self, event: ServerEvent) -> None:
        self._state = SERVING[self._state][event]

    def _process(self) -> None:
        """Handle frames until one has to wait, the bytes end, or the client does not take its answers."""
        reader = self._reader
        handle = self._handle
        self._is_processing = True
        try:
            while reader.pending and not self._state and not self._output:
                bounds = reader.next_frame()
                if bounds is None:
                    break
                start, end = bounds
                self._state = _HANDLING
                handle(self, reader.data, start, end)
                if self._out_bytes > JOIN_BYTES:
                    self._flush()
        except ProtocolError as error:
            self.refuse(error)
        finally:
            self._is_processing = False
        if self._state >= _CLOSING:
            reader.close()
            return
        if reader.pending or reader.private is not None:
            reader.settle()
        if self._out:
            self._hand_over()
        if reader.pending or self._input or self.frame_started is not None:
            self._pace_reading()

    def _flush(self) -> None:
        """Hand the collected answers to the transport, if there is any, and if there are some."""
        if self._out and self._state < _CLOSING:
            self._hand_over()

    def _hand_over(self) -> None:
        transport, out, size = self._transport, self._out, self._out_bytes
        if transport is None:
            return
        self._out = []
        self._out_bytes = 0
        if self._paced is not None and (size > JOIN_BYTES or self._paced.unsent or self._output):
            self._paced.add(out)
            self._write_paced()
            return
        if self._box.is_crowded and self._descriptor >= 0:
            if size <= JOIN_BYTES and not self._output:
                self._box.put(self._descriptor, b"".join(out))
                return
            self._box.empty(self._descriptor)
        if size <= JOIN_BYTES:
            transport.write(out[0] if len(out) == 1 else b"".join(out))
        else:
            transport.writelines(out)
            # In asyncio of Python 3.12 and 3.13 before 3.12.9 and 3.13.2 this pauses nobody by itself (CVE-2024-12254).
            if not transport.is_closing():
                transport.set_write_buffer_limits(high=0)

    def _leave_box(self) -> None:
        """From now on everything is given to the transport at once, as is what was in the box."""
        self._box.empty(self._descriptor)
        self._box.close(self._descriptor)
        self._descriptor = -1

    def _write_paced(self, *, even_if_paused: bool = False) -> None:
        paced = self._paced
        try:
            while paced is not None and paced.unsent and (even_if_paused or not self._output):
                paced.write()
        except OSError as error:
            self._break_off(error)

    def _send_files(self) -> None:
        """Send the collected answers, the last of which has file slices in it, once the transport is empty."""
        self._box.empty(self._descriptor)
        self._file_answer = self._out, self._out_bytes
        self._out, self._out_bytes = [], 0
        self._output = OUTPUT[self._output][OutputEvent.FILES]
        if self._output is Output.SENDING:
            self._send_queued()

    def _send_queued(self) -> None:
        """Send the answer that waited for the transport to be empty, and then go on."""
        transport = self._transport
        assert transport is not None and self._file_answer is not None, "an answer for nobody"
        out, size = self._file_answer
        self._file_answer = None
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
            self._watch_sending()

    def _files_sent(self, error: OSError | None) -> None:
        """The kernel has taken all of an answer with file slices, or sending failed with `error`."""
        self._sender = None
        self._output = OUTPUT[self._output][OutputEvent.SENT]
        if error is None:
            self.write_stalled = None
            self.last_active = self._loop.time()
            self.skip()
        else:
            self._break_off(error)

    def _break_off(self, error: OSError) -> None:
        """Close at once, as an answer cannot be sent to its end, and no client could make sense of what follows."""
        if not isinstance(error, ConnectionError) and error.errno != errno.ENOTCONN:
            host = self.session.client_host
            logger.warning("closed the connection from %s in the middle of an answer: %s", host, error)
        self.abort()

    def _unmute(self) -> None:
        self._muted = None
        self._turn(ServerEvent.UNMUTE)
        if not self._state and not self._is_processing:
            self._process()

    def _stop_sending(self) -> None:
        self._file_answer = None
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    def _watch_sending(self) -> None:
        """Note the time and how much is unsent, for `stalled_for`."""
        self.write_stalled = self._loop.time()
        self._unsent = self._unsent_bytes()

    def _unsent_bytes(self) -> int:
        if self._sender is not None:
            return self._sender.unsent
        paced = self._paced.unsent if self._paced is not None else 0
        return paced + (self._transport.get_write_buffer_size() if self._transport is not None else 0)

    def _pace_reading(self) -> None:
        """Stop or resume reading, by what is pending and what memory there is; note when an incomplete frame began."""
        transport, reader = self._transport, self._reader
        if transport is None or self._state >= _CLOSING:
            return
        pending = reader.pending
        waiting = bool(self._state or self._output)
        wanted = Input.READING
        if waiting:
            if pending >= READ_AHEAD_BYTES:
                wanted = Input.FULL
        elif not self._server.grants.may_receive(self):
            wanted = Input.SHORT
        if bool(wanted) != bool(self._input):
            (transport.pause_reading if wanted else transport.resume_reading)()
        self._input = wanted
        if waiting or not pending:
            self.frame_started = None
        elif self.frame_started is None:
            self.frame_started = self.last_active
