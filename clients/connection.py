"""One connection to one broker on an event loop, around `protocol.client_connection`.

Requests are pipelined: `send` never waits. A late response ends the whole connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, cast

from .. import __version__
from ..common.room_logger import room_logger
from ..protocol.apis import ApiKey, api_key_of
from ..protocol.client_connection import ClientConnection, Introduction
from ..protocol.codec import encode_request
from ..protocol.errors import ConnectionLostError, KafkaError
from ..protocol.messages.api_versions import ApiVersionsResponse
from ..protocol.receive_buffer import FrameMemory
from ..protocol.sasl import SaslExchange
from ..protocol.schema import UNBOUNDED, Buffer, Versions
from .errors import BrokerUnreachableError, RequestTimeoutError
from .host import beside_loop
from .security import PLAINTEXT, Security

logger = room_logger("clients")
_CONNECT_MS = 10_000
_BEFORE_THE_END = 0.85
"""Share of a session's lifetime after which it is renewed, the earliest time of Java's clients."""


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Settings of a client for all its connections."""

    client_id: str = "barnabas"
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int | None = None
    """Kafka's `socket.connection.setup.timeout.ms`, 10 s by default.

    If set, it also limits the broker's first responses; otherwise they have `request_timeout_ms`, as in Java's client.
    """
    max_response_bytes: int = 256 * 1024 * 1024
    max_in_flight: int | None = None
    """Number of requests from which `BrokerConnection.has_room` is false; None: no limit."""
    security: Security = PLAINTEXT
    memory: FrameMemory | None = None
    """Memory for large responses, which is used again once no part of a response is referenced."""


async def _exchange(security: Security, host: str) -> SaslExchange | None:
    begin = partial(security.exchange, host)
    return await beside_loop(begin) if security.blocks else begin()


class BrokerConnection(asyncio.BufferedProtocol):
    """A connection, created with `BrokerConnection.open`. All methods run on the loop that opened it."""

    def __init__(
        self,
        host: str,
        port: int,
        options: ConnectionOptions,
        loop: asyncio.AbstractEventLoop,
        *,
        sasl: SaslExchange | None,
    ) -> None:
        self.address = f"{host}:{port}"
        self._core: ClientConnection[asyncio.Future[Any]] = ClientConnection(
            self.address,
            Introduction(options.client_id, "barnabas", __version__),
            max_response_bytes=options.max_response_bytes,
            max_in_flight=options.max_in_flight,
            sasl=sasl,
            memory=options.memory,
        )
        self._request_timeout = options.request_timeout_ms / 1000
        self._opening_timeout = min(options.request_timeout_ms, options.connect_timeout_ms or inf) / 1000
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._opening: asyncio.Future[None] | None = loop.create_future()
        """Completed when versions are negotiated and the client is authenticated; None after that."""
        self._timer: asyncio.TimerHandle | None = None
        self._security = options.security
        self._host = host
        self._renewal: asyncio.TimerHandle | asyncio.Task[None] | None = None
        """Timer or task of the next re-authentication."""
        self._is_renewing = False
        self._writable = asyncio.Event()
        self._writable.set()

    @classmethod
    async def open(cls, host: str, port: int, options: ConnectionOptions) -> BrokerConnection:
        """Connect, negotiate versions and authenticate. Raises BrokerUnreachableError or the broker's error."""
        loop = asyncio.get_running_loop()
        security = options.security
        sasl = await _exchange(security, host)
        connection = cls(host, port, options, loop, sasl=sasl)
        opening = connection._opening
        assert opening is not None
        connect_ms = options.connect_timeout_ms or _CONNECT_MS
        try:
            async with asyncio.timeout(connect_ms / 1000):
                await loop.create_connection(lambda: connection, host, port, ssl=options.security.tls)
        except TimeoutError:
            connection.close()
            raise BrokerUnreachableError(
                f"cannot reach broker at {connection.address}: no response in {connect_ms} ms"
            ) from None
        except OSError as error:
            connection.close()
            reason = "connection refused" if "Connect call failed" in str(error) else error.strerror or str(error)
            raise BrokerUnreachableError(f"cannot reach broker at {connection.address}: {reason}") from error
        try:
            await opening
        except RequestTimeoutError:
            connection.close()
            if connection.api_versions:
                raise  # it is a broker, which has become silent
            raise BrokerUnreachableError(
                f"the server at {connection.address} does not respond like a Kafka broker"
            ) from None
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        """Return whether requests may be sent."""
        return self._core.is_ready

    @property
    def is_writable(self) -> bool:
        """Return whether the transport accepts more data."""
        return self._writable.is_set()

    @property
    def in_flight_count(self) -> int:
        """Return the number of requests that await their response."""
        return self._core.in_flight_count

    @property
    def has_room(self) -> bool:
        """Return whether fewer requests than `max_in_flight` are in flight, for callers that would send without end."""
        return self._core.has_room

    @property
    def api_versions(self) -> Mapping[int, Versions]:
        """Return the versions that the broker supports, by API key."""
        return self._core.api_versions

    @property
    def features(self) -> Mapping[str, int]:
        """Return the finalized feature levels of the cluster when the connection was opened."""
        return self._core.features

    def supports(self, api_key: ApiKey, version: int = 0) -> bool:
        """Return whether the broker supports `version` (or a later one) of this API."""
        return self._core.supports(api_key, version)

    def describe_versions(self) -> asyncio.Future[ApiVersionsResponse]:
        """Request the APIs and the features again. The connection continues with the versions of its start."""
        return self.send(self._core.versions_request())

    def version_for(self, api_key: ApiKey, *, lowest: int = 0, highest: int = UNBOUNDED) -> int:
        """Return the newest common version within the given bounds. Raises UnsupportedVersionError."""
        return self._core.version_for(api_key, lowest=lowest, highest=highest)

    def send(
        self,
        request: Any,
        version: int | None = None,
        *,
        timeout_ms: int | None = None,
        expects_response: bool = True,
    ) -> asyncio.Future[Any]:
        """Write a request message; the future returns the decoded response, or None if no response is expected.

        `version` None selects the newest common version. Raises ConnectionLostError if the connection is closed,
        UnsupportedVersionError.
        """
        api_key = api_key_of(request.__class__)
        if version is None:
            version = self._core.version_for(api_key)
        body = [encode_request(request, version)]
        if expects_response:
            return self._send(api_key, version, body, timeout_ms, decoded=True)
        self._write(self._core.request_without_response(api_key, version, body))
        future = self._loop.create_future()
        future.set_result(None)
        return future

    def send_encoded(self, api_key: ApiKey, version: int, body: Sequence[Buffer]) -> asyncio.Future[memoryview]:
        """Write a request with an encoded body; the future returns the raw frame, including its header."""
        return self._send(api_key, version, body, None, decoded=False)

    async def writable(self) -> None:
        """Wait until the transport accepts more data."""
        await self._writable.wait()

    def close(self, reason: KafkaError | None = None) -> None:
        """Close the connection; requests in flight fail."""
        error = reason or ConnectionLostError(f"the connection to {self.address} was closed")
        waiting = self._core.close()
        if self._opening is not None:
            waiting.append(self._opening)
            self._opening = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
        if self._transport is not None:
            self._transport.abort()
        self._writable.set()
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                # A cancelled caller does not retrieve the exception, which asyncio would log at exit (Python 3.13 does
                # not).
                future.exception()

    # Callbacks of the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport does not inherit from asyncio's class
        if self._opening is None:
            self._transport.abort()
            return
        deadline = self._loop.time() + self._opening_timeout
        self._core.connected(deadline)
        self._write(self._core.data_to_send())
        self._watch(deadline)

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(self._core.lost(str(exc) if exc else ""))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._core.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for future, response in self._core.received(nbytes):
                if not future.done():
                    future.set_result(response)
        except KafkaError as error:
            # The opener receives the reason as an error and may retry forever, so it is not logged.
            if self._opening is None:
                logger.warning("closed the connection: %s", error)
            elif isinstance(error, ConnectionLostError):
                error = BrokerUnreachableError(
                    f"the server at {self.address} is not a Kafka broker, or it requires TLS"
                )
            self.close(error)
        else:
            if self._opening is not None:
                self._go_on_opening(self._opening)
            elif self._is_renewing:
                self._go_on_renewing()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # Internals

    def _go_on_opening(self, opening: asyncio.Future[None]) -> None:
        self._write(self._core.data_to_send())
        if self._core.is_ready:
            self._opening = None
            if not opening.done():
                opening.set_result(None)
            self._renew_later()

    def _renew_later(self) -> None:
        """Authenticate again before the session expires on the broker (KIP-368)."""
        if self._core.session_ms:
            seconds = self._core.session_ms * _BEFORE_THE_END / 1000
            self._renewal = self._loop.call_later(seconds, self._begin_renewing)

    def _begin_renewing(self) -> None:
        self._renewal = self._loop.create_task(self._renew())

    async def _renew(self) -> None:
        try:
            sasl = await _exchange(self._security, self._host)
        except (KafkaError, ValueError) as error:
            # The session remains valid for a while; after its end the next request opens a new connection.
            logger.warning("connection to %s: cannot authenticate again: %s", self.address, error)
            return
        if sasl is not None and self._core.is_ready:
            self._is_renewing = True
            deadline = self._loop.time() + self._request_timeout
            self._core.renew(sasl, deadline)
            self._write(self._core.data_to_send())
            self._watch(deadline)

    def _go_on_renewing(self) -> None:
        self._write(self._core.data_to_send())
        if self._core.is_renewed:
            self._is_renewing = False
            self._renew_later()

    def _send(
        self, api_key: ApiKey, version: int, body: Sequence[Buffer], timeout_ms: int | None, *, decoded: bool
    ) -> asyncio.Future[Any]:
        timeout = self._request_timeout if timeout_ms is None else timeout_ms / 1000
        deadline = self._loop.time() + timeout
        future = self._loop.create_future()
        data = self._core.request(api_key, version, body, token=future, deadline=deadline, decoded=decoded)
        self._write(data)
        self._watch(deadline)
        return future

    def _write(self, data: list[Buffer]) -> None:
        if data:
            assert self._transport is not None
            self._transport.writelines(data)

    def _watch(self, deadline: float) -> None:
        """Ensure that the timer fires by `deadline`; one timer serves all requests."""
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        late = self._core.expired(self._loop.time())
        if late is not None:
            self.close(late)
            return
        earliest = self._core.earliest_deadline
        if earliest < inf:
            self._watch(earliest)
