"""Accepts connections that begin with a TLS handshake: counted, limited in number and time before it begins.

An event loop's own server tells of a connection only when its handshake is done: a client that connects and sends
nothing would be counted nowhere.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...protocol.room_logger import room_logger
from ..runtime.turns import ACCEPTED, Pace
from .crowd import Crowd
from .tls_handshake import Handshake, HandshakeBesideTheLoop

if TYPE_CHECKING:
    from .connection import Connection
    from .handshake_line import HandshakeLine

logger = room_logger("network")

HANDSHAKES = 500
"""How many at a time; one more ends the oldest of an address that has its share."""
HANDSHAKE_SECONDS = 10.0
PAUSE_SECONDS = 0.05
"""After an accept that failed, for want of a descriptor for one."""


class TlsAcceptor:
    """Of one listener. Loop-thread only."""

    def __init__(
        self,
        server: asyncio.Server,
        context: Callable[[], ssl.SSLContext],
        connection: Callable[[], Connection],
        loop: asyncio.AbstractEventLoop,
        *,
        backlog: int,
        is_welcome: Callable[[str, str, int], bool],
        line: HandshakeLine,
    ) -> None:
        """`server` holds the bound sockets and never serves.

        `is_welcome` is asked by address, that of this machine where the client came in, and descriptor.
        """
        self._streams: list[Any] = [stream.dup() for stream in server.sockets]
        self._backlog = backlog
        server.close()
        self._context = context
        self._connection = connection
        self._loop = loop
        self._is_welcome = is_welcome
        self._line = line
        self._accepting: list[asyncio.Task[None]] = []
        self._handshakes: Crowd[asyncio.Task[None]] = Crowd(HANDSHAKES)

    @property
    def handshakes(self) -> int:
        """How many are going on."""
        return len(self._handshakes)

    def start(self) -> None:
        """Begin to accept."""
        for stream in self._streams:
            stream.setblocking(False)
            stream.listen(self._backlog)
            self._accepting.append(self._loop.create_task(self._accept(stream)))

    def stop(self) -> None:
        """Accept nobody any more, and give up handshakes that are going on."""
        for task in (*self._accepting, *self._handshakes):
            task.cancel()
        for stream in self._streams:
            stream.close()

    async def closed(self) -> None:
        """Wait until its last connection attempt has ended."""
        await asyncio.gather(*self._accepting, *self._handshakes, return_exceptions=True)

    async def _accept(self, listening: Any) -> None:
        pace = Pace(ACCEPTED)
        while True:
            try:
                stream, address = await self._loop.sock_accept(listening)
                own = str(stream.getsockname()[0])
            except OSError as error:
                logger.warning("a connection could not be accepted: %s", error)
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            host = str(address[0])
            if not self._is_welcome(host, own, stream.fileno()):
                stream.close()
            else:
                task = self._loop.create_task(self._greet(stream, host))
                oldest = self._handshakes.add(task, host)
                if oldest is not None:
                    oldest.cancel()
                task.add_done_callback(self._handshakes.forget)
            await pace.step()

    async def _greet(self, stream: Any, host: str) -> None:
        connection, context = self._connection(), self._context()
        context.sslobject_class = HandshakeBesideTheLoop
        connection.await_transport()
        handshake = Handshake(self._loop, self._line, host)
        try:
            transport = await handshake.secure(stream, connection, context, HANDSHAKE_SECONDS)
        except (OSError, ssl.SSLError, TimeoutError) as error:
            logger.debug("a TLS handshake failed: %s", error)
        else:
            if transport is not None:
                connection.have_transport(transport)
