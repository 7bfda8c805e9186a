"""One client connection: frames in, responses out in order, one request at a time.

As Kafka mutes a socket while its request is being processed, the next frame of a connection is not looked at before
the previous one was answered; what a client pipelines stays in the receive buffer, and a full one stops reading.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from ...protocol.errors import ProtocolError
from ...protocol.frames import FrameReader
from .file_sender import FileSender, has_file_slices, read_into_memory
from .session import Session

if TYPE_CHECKING:
    from ..config.listeners import ListenerConfig
    from .socket_server import SocketServer

logger = logging.getLogger("barnabas.network")

READ_AHEAD_BYTES = 1 << 20
"""Received and not yet handled bytes of a busy connection beyond which reading stops."""
JOIN_BYTES = 1 << 16
"""Answers up to this size are copied into one buffer: cheaper than a vector of small writes."""
STALL_BYTES = 1 << 18
"""A client that takes less than this in a while, and no more than half of what is left, is as good as gone."""

Handle = Callable[["Connection", memoryview, int, int], None]
"""Handle the frame at [start, end) of the view; answer by `send`, `skip` or `close`, now or later."""


class Connection(asyncio.BufferedProtocol):
    """Loop-thread only. `handle` is called with one frame at a time and must not keep the view."""

    __slots__ = (
        "_busy",
        "_closing",
        "_file_answer",
        "_frozen",
        "_handle",
        "_held",
        "_loop",
        "_muted",
        "_out",
        "_out_bytes",
        "_processing",
        "_reader",
        "_reading_paused",
        "_sender",
        "_server",
        "_transport",
        "_unsent",
        "_writing_paused",
        "frame_started",
        "last_active",
        "on_close",
        "session",
        "write_stalled",
    )

    def __init__(self, server: SocketServer, listener: ListenerConfig, handle: Handle, reader: FrameReader) -> None:
        self._server = server
        self._handle = handle
        self._loop = server.loop
        self._reader = reader
        self._transport: asyncio.Transport | None = None
        self._closing: asyncio.Transport | None = None
        """The transport while it sends what is left before it closes."""
        self._file_answer: tuple[list[Any], int] | None = None
        """An answer with stretches of files, and its size, that waits for the transport to send what was before it."""
        self._sender: FileSender | None = None
        """Sends what the transport cannot: stretches of files. While it does, the request counts as being processed."""
        self._unsent = 0
        self._out: list[Any] = []
        self._out_bytes = 0
        self._busy = False
        self._frozen = False
        self._muted: asyncio.TimerHandle | None = None
        self._held = False
        """Whether no further request is looked at, being frozen or muted."""
        self._processing = False
        self._reading_paused = False
        self._writing_paused = False
        self.session = Session("", listener)
        self.on_close: Callable[[], None] | None = None
        self.last_active = self._loop.time()
        """Loop time of the last received byte."""
        self.frame_started: float | None = None
        """Loop time at which the frame that is still incomplete began to arrive."""
        self.write_stalled: float | None = None
        """Loop time since which the client has not taken what was sent to it."""

    # -- what the loop calls ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = stream = cast(asyncio.Transport, transport)
        # The next request waits for the client to take the answers: so there is never more than one of them to hold.
        # (TLS, were it served, would count as paused for ever with this: it takes 0 unsent bytes for too many.)
        stream.set_write_buffer_limits(high=0)
        peer = stream.get_extra_info("peername")
        self.session.client_host = str(peer[0]) if isinstance(peer, tuple) else ""
        if not self._server.admit(self):
            stream.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = self._closing = None
        self._stop_sending()
        self._reader.close()
        self._out.clear()
        self._server.forget(self)
        if self._muted is not None:
            self._muted.cancel()
        if self.on_close is not None:
            self.on_close()
            self.on_close = None

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.pending += nbytes
        self.last_active = self._loop.time()
        self._process()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writing_paused = True
        self.write_stalled = self._loop.time()
        self._unsent = self._unsent_bytes()

    def resume_writing(self) -> None:
        self._writing_paused = False
        if self._closing is None:
            self.write_stalled = None
        if self._file_answer is not None:
            self._send_files(*self._file_answer)
        elif self._transport is not None and not self._processing:
            self._process()

    # -- what the handler calls ------------------------------------------------------------------------------------

    def send(self, parts: list[Any], size: int) -> None:
        """Send the answer to the request in hand, as buffers of `size` bytes in all, and go on with the next."""
        if self._transport is None:
            return
        self._out += parts
        self._out_bytes += size
        if size > JOIN_BYTES and has_file_slices(parts):
            out, size, self._out, self._out_bytes = self._out, self._out_bytes, [], 0
            self._send_files(out, size)
        else:
            self.skip()

    def skip(self) -> None:
        """The request in hand wants no answer; go on with the next."""
        self._busy = self._held
        self.on_close = None
        if not self._processing and self._transport is not None:
            self._process()

    def freeze(self) -> None:
        """Answer the request in hand, if there is one, and look at no further one: the broker is about to stop."""
        self._frozen = self._held = self._busy = True

    def mute(self, seconds: float) -> None:
        """Look at no further request for that long once the one in hand is answered (KIP-219)."""
        if self._transport is None:
            return
        self._held = True
        self._muted = self._loop.call_later(seconds, self._unmute)

    def refuse(self, error: ProtocolError) -> None:
        """Close because of a request that is none."""
        self._server.protocol_error(self, error)
        self.close()

    def close(self) -> None:
        """Send what is ready, then close."""
        transport = self._transport
        self._file_answer = None
        if self._sender is not None:
            # What would follow the part of the answer that was sent is nothing a client could make sense of.
            self.abort()
        elif transport is not None:
            self._flush()
            self._transport = None
            self._closing = transport
            self.write_stalled = self.write_stalled or self._loop.time()
            self._unsent = self._unsent_bytes()
            transport.close()

    def abort(self) -> None:
        """Close at once, whatever is unsent."""
        transport = self._transport or self._closing
        if transport is not None:
            self._transport = self._closing = None
            self._stop_sending()
            transport.abort()

    # -- what the server calls -------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """The number of the socket's file handle, -1 where there is none."""
        stream = self._transport.get_extra_info("socket") if self._transport is not None else None
        return stream.fileno() if stream is not None else -1

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

    # -- inside ----------------------------------------------------------------------------------------------------

    def _process(self) -> None:
        """Handle frames until one has to wait, the bytes end, or the client does not take its answers."""
        reader = self._reader
        handle = self._handle
        self._processing = True
        try:
            while reader.pending and not self._busy and not self._writing_paused and self._transport is not None:
                bounds = reader.next_frame()
                if bounds is None:
                    break
                self._busy = True
                handle(self, reader.data, bounds[0], bounds[1])
                if self._out_bytes > JOIN_BYTES:
                    self._flush()
        except ProtocolError as error:
            self.refuse(error)
        finally:
            self._processing = False
        if self._transport is None:
            reader.close()
            return
        reader.settle()
        if self._out:
            self._flush()
        if reader.pending or self._reading_paused or self.frame_started is not None:
            self._pace_reading()

    def _flush(self) -> None:
        """Hand the collected answers to the transport."""
        transport, out, size = self._transport, self._out, self._out_bytes
        if not out or transport is None:
            return
        self._out = []
        self._out_bytes = 0
        if size <= JOIN_BYTES:
            transport.write(out[0] if len(out) == 1 else b"".join(out))
        else:
            transport.writelines(out)
            # In asyncio of Python 3.12 and 3.13 before 3.12.9 and 3.13.2 this pauses nobody by itself (CVE-2024-12254).
            if not transport.is_closing():
                transport.set_write_buffer_limits(high=0)

    def _send_files(self, out: list[Any], size: int) -> None:
        """Send answers, of which the last carries stretches of files, and then go on."""
        transport = self._transport
        assert transport is not None, "an answer for nobody"
        self._file_answer = None
        stream = transport.get_extra_info("socket")
        try:
            if stream is None or transport.get_extra_info("sslcontext"):
                transport.writelines(read_into_memory(out))
            elif transport.get_write_buffer_size():
                self._file_answer = out, size
                return
            else:
                self._sender = FileSender(stream, out, size, self._loop, self._files_sent)
        except OSError as error:
            self._files_sent(error)
            return
        if self._sender is None:
            self.skip()
            return
        self._sender.send()
        if self._sender is not None:
            self.write_stalled = self._loop.time()
            self._unsent = self._sender.unsent

    def _files_sent(self, error: OSError | None) -> None:
        """The kernel has taken all of an answer with files, or there is nothing more to be done about it."""
        self._sender = None
        if error is None:
            self.write_stalled = None
            self.skip()
        else:
            if not isinstance(error, ConnectionError) and error.errno != errno.ENOTCONN:
                logger.warning(
                    "closed the connection from %s in the middle of an answer: %s", self.session.client_host, error
                )
            self.abort()

    def _unmute(self) -> None:
        self._muted = None
        self._held = self._frozen
        # An answer that is still being sent goes on with the next request itself.
        if self._sender is None and self._file_answer is None:
            self.skip()

    def _stop_sending(self) -> None:
        self._file_answer = None
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    def _unsent_bytes(self) -> int:
        if self._sender is not None:
            return self._sender.unsent
        transport = self._transport or self._closing
        return transport.get_write_buffer_size() if transport is not None else 0

    def _pace_reading(self) -> None:
        """Stop reading from a client whose unhandled requests fill the buffer; note since when a frame is late."""
        transport, pending = self._transport, self._reader.pending
        waiting = self._busy or self._writing_paused
        if transport is None:
            return
        if waiting and pending >= READ_AHEAD_BYTES:
            if not self._reading_paused:
                self._reading_paused = True
                transport.pause_reading()
        elif self._reading_paused:
            self._reading_paused = False
            transport.resume_reading()
        if waiting or not pending:
            self.frame_started = None
        elif self.frame_started is None:
            self.frame_started = self.last_active
