"""The requests of clients on a listener with SASL, filtered before they reach the request handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from ...protocol.errors import ErrorCode, KafkaError, ProtocolError
from ...protocol.headers import KEY_SIZE, key_at
from ..runtime.loop_sharing import TurnQueue
from ..runtime.ports import no_collection

if TYPE_CHECKING:
    from ..security.sasl_server_authenticator import SaslServerAuthenticator
    from .connection import Connection, Handle

LARGEST_REFUSED_BYTES = 1 << 13
"""A larger request of a client that is not authenticated is not decoded for an error response in its own form."""

Refuse: TypeAlias = "Callable[[Connection, memoryview, int, int, KafkaError], None]"
"""Answers the frame at [start, end) of the view with an error. Raises ProtocolError."""


class SaslRequestFilter:
    """A request handler in front of the real one, for the connections of all SASL listeners.

    It answers raw SASL messages and refuses requests that are not legal before the client is authenticated. Owned by
    the socket server and used on its thread only.
    """

    def __init__(self, handle: Handle, refuse: Refuse, loop: asyncio.AbstractEventLoop) -> None:
        """`handle` gets the requests that are allowed; `refuse` answers a request with an error."""
        self._handle = handle
        self._refuse = refuse
        self._loop = loop
        self._turn_queue = TurnQueue(loop, no_collection)
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, connection: Connection, buffer: memoryview, start: int, end: int) -> None:
        """Handle the frame at [start, end), if the client may send it now. Raises ProtocolError."""
        authentication = connection.session.authentication
        assert authentication is not None, "a listener with SASL"
        if authentication.is_raw:
            # One message per turn, as with requests of `CONNECTION_SETUP_APIS`: all clients that are not authenticated
            # share a small part of each turn.
            message = bytes(buffer[start:end])
            self._turn_queue.add(lambda: self._begin_response(connection, authentication, message))
            return
        if authentication.state or authentication.ends_at is not None:
            if end - start < KEY_SIZE:
                raise ProtocolError("a frame without a request")
            try:
                authentication.check(key_at(buffer, start)[0])
            except KafkaError as error:
                # The client is not authenticated: decoding a large request for it would cost too much.
                if end - start <= LARGEST_REFUSED_BYTES:
                    self._refuse(connection, buffer, start, end, error)
                connection.close()
                return
        self._handle(connection, buffer, start, end)

    def _begin_response(self, connection: Connection, authentication: SaslServerAuthenticator, message: bytes) -> None:
        if connection.is_lost:
            return
        task = self._loop.create_task(self._respond(connection, authentication, message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _respond(self, connection: Connection, authentication: SaslServerAuthenticator, message: bytes) -> None:
        """Answer a raw SASL message, as after SaslHandshake 0; a failure closes the connection."""
        try:
            answer, _ = await authentication.evaluate_response(connection.session, message)
        except KafkaError as error:
            if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
                await asyncio.sleep(authentication.failure_delay)
            connection.close()
            return
        connection.send([len(answer).to_bytes(4, "big"), answer], 4 + len(answer))

    async def close(self) -> None:
        """Cancel the authentications in progress."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
