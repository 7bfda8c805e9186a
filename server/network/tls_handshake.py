"""TLS handshakes computed beside the loop: a signature by RSA takes a millisecond, and strangers can ask for many.

The event loop's own TLS does what is to be done next whenever bytes arrive, and asks its SSL object for that. Here that
object has a lane do it (`HandshakeLine`), says meanwhile that it wants more bytes, and is asked again when the lane is
done. As long as the lane is at it, nothing that happens to the connection reaches the loop's TLS, which would use the
same buffers. When the handshake is over the loop's TLS is alone with the connection, and costs what it always does.

What ends a handshake of TLS 1.3 is not worth the way to the lane and back: where no certificate is asked of the client,
all that is left is to check a hash of what both have said.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self, cast

if TYPE_CHECKING:
    from .handshake_line import HandshakeLine

EARLY_BYTES = 1 << 12
"""Read at once before the loop's TLS is there."""

_RECORD_HEAD, _ENCRYPTED = 5, 23
"""Of a record of TLS: bytes before its content, the last two of which are its length; the first byte of one that says
nothing of what it holds.
"""

_present: ContextVar[Handshake] = ContextVar("handshake")


class Handshake(asyncio.BufferedProtocol):
    """Stands between a transport in the clear and the loop's TLS protocol. Loop-thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, line: HandshakeLine, address: str) -> None:
        """`address` is the client's."""
        self._loop = loop
        self._line = line
        self._address = address
        self._stream: Any = None
        self._transport: asyncio.Transport | None = None
        self._tls: Any = None
        self._early: bytearray | None = bytearray()
        """What came before the loop's TLS could take it; None from then on."""
        self._buffer = bytearray()
        self._step: Callable[[], None] | None = None
        """To be done by the lane."""
        self._is_at_it = False
        self._later: list[Callable[[], object]] = []
        """What the loop's TLS is told when the lane is done."""

    async def secure(
        self, stream: Any, protocol: asyncio.BaseProtocol, context: ssl.SSLContext, seconds: float
    ) -> asyncio.Transport | None:
        """The transport of a connection that was accepted, whose `connection_made` is the caller's to call.

        None if it was lost on the way. Raises OSError (ssl.SSLError), TimeoutError.
        """
        _present.set(self)
        self._stream = stream
        transport, _ = await self._loop.connect_accepted_socket(lambda: self, stream)
        try:
            if transport.is_closing():
                return None
            # In the loop's next turn, before its TLS hears of the connection.
            self._loop.call_soon(self._step_between, transport)
            secured = await self._loop.start_tls(
                transport, protocol, context, server_side=True, ssl_handshake_timeout=seconds
            )
        except BaseException:
            transport.abort()
            raise
        finally:
            # The transport has the context that it was made in, and that has this.
            self._transport = self._stream = None
        if secured is None or secured.is_closing() or transport.is_closing():
            transport.abort()
            return None
        transport.set_protocol(self._tls)
        self._tls = None
        return secured

    def _step_between(self, transport: asyncio.Transport) -> None:
        if not transport.is_closing():
            self._transport, self._tls = transport, transport.get_protocol()
            transport.set_protocol(self)
            self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        early, self._early = self._early, None
        self._buffer = bytearray()
        if early and self._tls is not None:
            memoryview(self._tls.get_buffer(len(early)))[: len(early)] = early
            self.buffer_updated(len(early))

    # -- what the loop's TLS calls, through its SSL object -----------------------------------------------------------

    def begin(self, step: Callable[[], None]) -> None:
        """Have the lane do this once the loop's TLS has returned."""
        self._step = step

    def say_last(self, alert: bytes) -> None:
        """Tell the client why its handshake failed: the loop's TLS does not, and cuts the connection off next."""
        if alert and self._transport is not None and not self._transport.is_closing():
            with suppress(OSError):
                self._stream.send(alert)

    # -- what the transport calls ------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._early is None:
            return cast(memoryview, self._tls.get_buffer(sizehint))
        self._buffer = bytearray(EARLY_BYTES)
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        if self._early is not None:
            self._early += self._buffer[:nbytes]
            return
        self._tls.buffer_updated(nbytes)
        step, self._step = self._step, None
        if step is not None and self._transport is not None and not self._transport.is_closing():
            self._is_at_it = True
            self._transport.pause_reading()
            self._line.join(self, self._address, (step, self._was_done))

    def eof_received(self) -> bool:
        self._tell(lambda: self._tls.eof_received())
        return False

    def pause_writing(self) -> None:
        self._tell(lambda: self._tls.pause_writing())

    def resume_writing(self) -> None:
        self._tell(lambda: self._tls.resume_writing())

    def connection_lost(self, exc: Exception | None) -> None:
        if self._line.leave(self, self._address):
            self._was_done()
        self._tell(lambda: self._lose(exc))

    def _lose(self, exc: Exception | None) -> None:
        self._tls.connection_lost(exc)
        # The two would hold each other.
        self._tls = None

    def _tell(self, event: Callable[[], object]) -> None:
        if self._is_at_it:
            self._later.append(event)
        elif self._tls is not None:
            event()

    def _was_done(self) -> None:
        self._is_at_it = False
        later, self._later = self._later, []
        for event in later:
            event()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self.buffer_updated(0)


class HandshakeBesideTheLoop(ssl.SSLObject):
    """The `sslobject_class` of a context whose connections `Handshake.secure` makes."""

    _handshake: Handshake | None = None
    _is_done = False
    _is_short = False
    """Whether what is left of it can be done on the loop."""
    _failure: Exception | None = None
    _outgoing: ssl.MemoryBIO

    @classmethod
    def _create(cls, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **kwargs: Any) -> Self:
        made: Self = cast(Any, super())._create(incoming, outgoing, *args, **kwargs)
        made._outgoing = outgoing
        return made

    def do_handshake(self) -> None:
        """What the lane's last step came to; before that SSLWantReadError, and the lane begins with one."""
        if self._handshake is None and not self._is_done:
            # The client speaks first.
            self._handshake = _present.get()
            raise ssl.SSLWantReadError
        if self._is_short and self._failure is None:
            self._advance()
        if self._is_done:
            self._handshake = None
            return
        failure, self._failure = self._failure, None
        assert self._handshake is not None, "there is one as long as it is not done"
        if failure is None:
            self._handshake.begin(self._advance)
            raise ssl.SSLWantReadError
        if not isinstance(failure, ssl.SSLWantReadError):
            self._handshake.say_last(self._outgoing.read())
        try:
            raise failure
        finally:
            # It has this frame now.
            del failure

    def _advance(self) -> None:
        try:
            super().do_handshake()
        except Exception as error:  # noqa: BLE001 - it is for the loop's TLS, which asks for it
            # Where it was raised is in a frame that has this.
            self._failure = error.with_traceback(None)
            if self.context.verify_mode == ssl.CERT_NONE and not self._is_short:
                self._is_short = self._has_said_all()
        else:
            self._is_done = True

    def _has_said_all(self) -> bool:
        """Whether there is an encrypted record in what the client is told: only TLS 1.3 has one before the end."""
        flight = self._outgoing.read()
        self._outgoing.write(flight)
        at = 0
        while at < len(flight) and flight[at] != _ENCRYPTED:
            at += _RECORD_HEAD + int.from_bytes(flight[at + _RECORD_HEAD - 2 : at + _RECORD_HEAD], "big")
        return at < len(flight)
