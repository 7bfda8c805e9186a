"""Listening sockets with TLS, and handshakes that are computed by a lane next to the event loop.

An RSA signature takes a millisecond, and any client may start handshakes. The event loop's own TLS protocol calls its
SSL object whenever bytes arrive. `OffloadedSSLObject` has a lane compute the next step instead, reports that it needs
more bytes, and is called again when the lane is done. While the lane computes, `TlsHandshake` holds back all events of
the connection, because the loop's TLS protocol would use the same buffers. After the handshake the loop's TLS protocol
is alone with the transport and costs the same as always.

If no client certificate is requested, the loop computes the last step of a TLS 1.3 handshake: it checks only a hash.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self, cast

from ...common.room_logger import room_logger
from ..runtime.log_limit import LimitedLog
from ..runtime.loop_sharing import CountBudget
from .admission import FairAdmissionQueue

if TYPE_CHECKING:
    from ..runtime.ports import Work
    from .connection import Connection

logger = room_logger("network")

ACCEPTED_CONNECTIONS_PER_TURN = 20
"""Connections that one listener accepts."""
MAX_HANDSHAKES = 500
"""Handshakes of one listener at the same time. One more ends the oldest of an address that has its share."""
HANDSHAKE_SECONDS = 10.0
ACCEPT_RETRY_SECONDS = 0.05
"""Pause after a failed `accept`, which has no free descriptor."""
HANDSHAKE_LANE = "handshakes"
MAX_SUBMITTED_STEPS = 2
"""Steps that the lane holds: the current step and the next, so that the lane does not wait for the loop."""
MAX_EARLY_BYTES = 1 << 12
"""Bytes of one read before the loop's TLS protocol is attached."""

_RECORD_HEADER_BYTES = 5
"""The header of a TLS record ends with two bytes of the length of its content."""
_APPLICATION_DATA = 23
"""The first byte of an encrypted record."""

_current_handshake: ContextVar[TlsHandshake] = ContextVar("handshake")

Step = tuple[Callable[[], None], Callable[[], None]]
"""A function for the lane, and a callback for the loop when it has returned."""


class TlsAcceptor:
    """The listening sockets of one TLS listener and its unfinished handshakes. Used on the loop's thread only.

    An event loop's own server reports a connection after its handshake: clients that connect and send nothing would
    not be counted. Here they are counted, and limited in number and time, before the handshake.
    """

    def __init__(
        self,
        server: asyncio.Server,
        context: Callable[[], ssl.SSLContext],
        create_connection: Callable[[], Connection],
        loop: asyncio.AbstractEventLoop,
        *,
        backlog: int,
        may_connect: Callable[[str, str, int], bool],
        queue: HandshakeQueue,
        on_failed: Callable[[], None] = lambda: None,
    ) -> None:
        """`server` holds the bound sockets and never serves.

        `may_connect` gets the client's address, the local address of the connection, and its descriptor. `on_failed` is
        called when a handshake fails, but not when it times out or the client disconnects.
        """
        self._streams: list[Any] = [stream.dup() for stream in server.sockets]
        self._backlog = backlog
        server.close()
        self._context = context
        self._create_connection = create_connection
        self._loop = loop
        self._may_connect = may_connect
        self._queue = queue
        self._on_failed = on_failed
        self._failure_log = LimitedLog(logger, loop.time)
        self._accepting: list[asyncio.Task[None]] = []
        self._handshakes: FairAdmissionQueue[asyncio.Task[None]] = FairAdmissionQueue(MAX_HANDSHAKES)

    @property
    def handshakes(self) -> int:
        """The number of unfinished handshakes."""
        return len(self._handshakes)

    def start(self) -> None:
        """Begin to accept connections."""
        for stream in self._streams:
            stream.setblocking(False)
            stream.listen(self._backlog)
            self._accepting.append(self._loop.create_task(self._accept(stream)))

    def stop(self) -> None:
        """Accept no further connection, and cancel unfinished handshakes."""
        for task in (*self._accepting, *self._handshakes):
            task.cancel()
        for stream in self._streams:
            stream.close()

    async def wait_closed(self) -> None:
        """Wait until the last handshake has ended."""
        await asyncio.gather(*self._accepting, *self._handshakes, return_exceptions=True)

    async def _accept(self, listening: Any) -> None:
        budget = CountBudget(ACCEPTED_CONNECTIONS_PER_TURN)
        while True:
            try:
                stream, address = await self._loop.sock_accept(listening)
                own = str(stream.getsockname()[0])
            except OSError as error:
                logger.warning("a connection could not be accepted: %s", error)
                await asyncio.sleep(ACCEPT_RETRY_SECONDS)
                continue
            host = str(address[0])
            if not self._may_connect(host, own, stream.fileno()):
                stream.close()
            else:
                task = self._loop.create_task(self._connect(stream, host))
                evicted = self._handshakes.add(task, host)
                if evicted is not None:
                    evicted.cancel()
                task.add_done_callback(self._handshakes.remove)
            await budget.step()

    async def _connect(self, stream: Any, host: str) -> None:
        connection, context = self._create_connection(), self._context()
        context.sslobject_class = OffloadedSSLObject
        connection.await_transport()
        handshake = TlsHandshake(self._loop, self._queue, host)
        try:
            transport = await handshake.run(stream, connection, context, HANDSHAKE_SECONDS)
        except (OSError, TimeoutError) as error:
            if isinstance(error, ssl.SSLError) and not isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
                self._on_failed()
                self._failure_log.write(logging.INFO, "the TLS handshake of %s failed: %s", host, error)
            else:
                logger.debug("the TLS handshake of %s did not end: %s", host, error)
        else:
            if transport is not None:
                connection.set_transport(transport)


class HandshakeQueue:
    """The handshake steps of all listeners that wait for the lane. Owned by the socket server, used on its thread only.

    Addresses take turns, and steps of closed connections are dropped: otherwise the handshakes of one client would
    delay all others, even after it has disconnected.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._waiting: dict[str, dict[object, Step]] = {}
        """The waiting handshakes by address; the next step is the oldest of the first address."""
        self._submitted = 0

    def __len__(self) -> int:
        """Return the number of waiting steps."""
        return sum(map(len, self._waiting.values()))

    def add(self, handshake: object, address: str, step: Step) -> None:
        """Have a step computed, which raises nothing."""
        self._waiting.setdefault(address, {})[handshake] = step
        self._submit_next()

    def remove(self, handshake: object, address: str) -> bool:
        """Drop the step of a handshake. Return whether it was still waiting."""
        of_address = self._waiting.get(address)
        if of_address is None or of_address.pop(handshake, None) is None:
            return False
        if not of_address:
            del self._waiting[address]
        return True

    def _submit_next(self) -> None:
        while self._waiting and self._submitted < MAX_SUBMITTED_STEPS:
            address = next(iter(self._waiting))
            of_address = self._waiting.pop(address)
            compute, callback = of_address.pop(next(iter(of_address)))
            if of_address:
                self._waiting[address] = of_address  # at the end: the other addresses are next
            self._submitted += 1

            def done(_: None, error: BaseException | None, callback: Callable[[], None] = callback) -> None:
                assert error is None, "a step keeps its own result"
                self._submitted -= 1
                self._submit_next()
                callback()

            self._work.submit(HANDSHAKE_LANE, compute, done)


class TlsHandshake(asyncio.BufferedProtocol):
    """One handshake: a protocol between a plain transport and the loop's TLS protocol, used on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, queue: HandshakeQueue, address: str) -> None:
        """`address` is that of the client."""
        self._loop = loop
        self._queue = queue
        self._address = address
        self._stream: Any = None
        self._transport: asyncio.Transport | None = None
        self._tls: Any = None
        self._early: bytearray | None = bytearray()
        """Bytes that arrived before the loop's TLS protocol was attached; None after that."""
        self._buffer = bytearray()
        self._step: Callable[[], None] | None = None
        """The next step for the lane."""
        self._is_computing = False
        self._delayed_events: list[Callable[[], object]] = []
        """Events for the loop's TLS protocol when the lane is done."""

    async def run(
        self, stream: Any, protocol: asyncio.BaseProtocol, context: ssl.SSLContext, seconds: float
    ) -> asyncio.Transport | None:
        """Return the encrypted transport of an accepted connection, None if it was lost during the handshake.

        The caller calls `connection_made`. Raises OSError (ssl.SSLError), TimeoutError.
        """
        _current_handshake.set(self)
        self._stream = stream
        transport, _ = await self._loop.connect_accepted_socket(lambda: self, stream)
        try:
            if transport.is_closing():
                return None
            # In the loop's next turn, before its TLS protocol gets the first event of the connection.
            self._loop.call_soon(self._interpose, transport)
            encrypted = await self._loop.start_tls(
                transport, protocol, context, server_side=True, ssl_handshake_timeout=seconds
            )
        except BaseException:
            transport.abort()
            raise
        finally:
            # The transport refers to the context in which it was created, and that to this object: a reference cycle.
            self._transport = self._stream = None
        if encrypted is None or encrypted.is_closing() or transport.is_closing():
            transport.abort()
            return None
        transport.set_protocol(self._tls)
        self._tls = None
        return encrypted

    def _interpose(self, transport: asyncio.Transport) -> None:
        if not transport.is_closing():
            self._transport, self._tls = transport, transport.get_protocol()
            transport.set_protocol(self)
            self._loop.call_soon(self._forward_early_bytes)

    def _forward_early_bytes(self) -> None:
        early, self._early = self._early, None
        self._buffer = bytearray()
        if early and self._tls is not None:
            memoryview(self._tls.get_buffer(len(early)))[: len(early)] = early
            self.buffer_updated(len(early))

    # -- called by the SSL object ------------------------------------------------------------------------------------

    def set_next_step(self, step: Callable[[], None]) -> None:
        """Have the lane compute this step after the loop's TLS protocol has returned."""
        self._step = step

    def send_alert(self, alert: bytes) -> None:
        """Send the client the reason of a failure: the loop's TLS protocol closes the connection without it."""
        if alert and self._transport is not None and not self._transport.is_closing():
            with suppress(OSError):
                self._stream.send(alert)

    # -- called by the transport -------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._early is None:
            return cast(memoryview, self._tls.get_buffer(sizehint))
        self._buffer = bytearray(MAX_EARLY_BYTES)
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        if self._early is not None:
            self._early += self._buffer[:nbytes]
            return
        self._tls.buffer_updated(nbytes)
        step, self._step = self._step, None
        if step is not None and self._transport is not None and not self._transport.is_closing():
            self._is_computing = True
            self._transport.pause_reading()
            self._queue.add(self, self._address, (step, self._on_step_done))

    def eof_received(self) -> bool:
        self._forward(lambda: self._tls.eof_received())
        return False

    def pause_writing(self) -> None:
        self._forward(lambda: self._tls.pause_writing())

    def resume_writing(self) -> None:
        self._forward(lambda: self._tls.resume_writing())

    def connection_lost(self, exc: Exception | None) -> None:
        if self._queue.remove(self, self._address):
            self._on_step_done()
        self._forward(lambda: self._on_lost(exc))

    def _on_lost(self, exc: Exception | None) -> None:
        self._tls.connection_lost(exc)
        # Otherwise a reference cycle.
        self._tls = None

    def _forward(self, event: Callable[[], object]) -> None:
        if self._is_computing:
            self._delayed_events.append(event)
        elif self._tls is not None:
            event()

    def _on_step_done(self) -> None:
        self._is_computing = False
        events, self._delayed_events = self._delayed_events, []
        for event in events:
            event()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self.buffer_updated(0)


class OffloadedSSLObject(ssl.SSLObject):
    """The SSL object of a connection whose handshake `TlsHandshake` runs (`SSLContext.sslobject_class`)."""

    _handshake: TlsHandshake | None = None
    _is_done = False
    _can_finish_on_loop = False
    """Whether the rest of the handshake is cheap."""
    _failure: Exception | None = None
    _outgoing: ssl.MemoryBIO

    @classmethod
    def _create(cls, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **kwargs: Any) -> Self:
        made: Self = cast(Any, super())._create(incoming, outgoing, *args, **kwargs)
        made._outgoing = outgoing
        return made

    def do_handshake(self) -> None:
        """Return or raise the result of the lane's last step. Without one, set the next and raise SSLWantReadError."""
        if self._handshake is None and not self._is_done:
            # The client sends first.
            self._handshake = _current_handshake.get()
            raise ssl.SSLWantReadError
        if self._can_finish_on_loop and self._failure is None:
            self._advance()
        if self._is_done:
            self._handshake = None
            return
        failure, self._failure = self._failure, None
        assert self._handshake is not None, "an unfinished handshake"
        if failure is None:
            self._handshake.set_next_step(self._advance)
            raise ssl.SSLWantReadError
        if not isinstance(failure, ssl.SSLWantReadError):
            self._handshake.send_alert(self._outgoing.read())
        try:
            raise failure
        finally:
            # Its traceback refers to this frame: a reference cycle.
            del failure

    def _advance(self) -> None:
        try:
            super().do_handshake()
        except Exception as error:  # noqa: BLE001 - raised by `do_handshake` on the loop
            # The traceback refers to a frame of this object: a reference cycle.
            self._failure = error.with_traceback(None)
            if self.context.verify_mode == ssl.CERT_NONE and not self._can_finish_on_loop:
                self._can_finish_on_loop = self._has_sent_encrypted_record()
        else:
            self._is_done = True

    def _has_sent_encrypted_record(self) -> bool:
        """Return whether the outgoing bytes have an encrypted record, which only TLS 1.3 sends before the last step."""
        flight = self._outgoing.read()
        self._outgoing.write(flight)
        at = 0
        while at < len(flight) and flight[at] != _APPLICATION_DATA:
            content = at + _RECORD_HEADER_BYTES
            at = content + int.from_bytes(flight[content - 2 : content], "big")
        return at < len(flight)
