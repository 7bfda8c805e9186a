"""Stands before the handlers on a listener with SASL: what a client may send that is not authenticated yet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError, ProtocolError
from ...protocol.headers import KEY_SIZE, key_at

if TYPE_CHECKING:
    from ..security.authentication import SaslAuthentication
    from .connection import Connection, Handle


class SaslGate:
    """Stands in for what handles requests. Loop-thread only."""

    def __init__(self, handle: Handle, loop: asyncio.AbstractEventLoop) -> None:
        """`handle` gets the requests that are allowed."""
        self._handle = handle
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, connection: Connection, buffer: memoryview, start: int, end: int) -> None:
        """Handle the frame at [start, end), if the client may send it now. Raises ProtocolError."""
        authentication = connection.session.authentication
        assert authentication is not None, "a listener with SASL"
        if authentication.is_bare:
            task = self._loop.create_task(self._answer(connection, authentication, bytes(buffer[start:end])))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        if authentication.state or authentication.ends_at is not None:
            if end - start < KEY_SIZE:
                raise ProtocolError("a frame without a request")
            authentication.check(key_at(buffer, start)[0])
        self._handle(connection, buffer, start, end)

    async def _answer(self, connection: Connection, authentication: SaslAuthentication, message: bytes) -> None:
        """Answer a bare SASL message, as after SaslHandshake 0; a failure closes the connection."""
        try:
            answer, _ = await authentication.go_on(connection.session, message)
        except KafkaError as error:
            if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
                await asyncio.sleep(authentication.failure_delay)
            connection.close()
            return
        connection.send([len(answer).to_bytes(4, "big"), answer], 4 + len(answer))

    async def close(self) -> None:
        """Stop an authentication that is under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
