"""One connection to one broker: requests out, responses matched to them in order, versions agreed at the start.

Requests are pipelined: `send` never waits. A broker answers a connection's requests in the order they came (so a
correlation id out of order is a broken peer), hence a queue pairs them. When a response is late the whole connection is
given up, because nothing behind it can arrive either.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, cast

from .. import __version__
from ..protocol.apis import API_MESSAGES, ApiKey
from ..protocol.codec import decode_response, encode_request
from ..protocol.errors import ErrorCode, KafkaError, ProtocolError
from ..protocol.headers import RequestHeader, decode_response_header, encode_request_header
from ..protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ..protocol.negotiation import negotiate
from ..protocol.schema import UNBOUNDED, Buffer, Versions
from .errors import BrokerUnreachableError, ConnectionLostError, RequestTimeoutError, UnsupportedVersionError, code_of
from .receive_buffer import ReceiveBuffer

log = logging.getLogger(__name__)


@cache
def _key_of(request: type) -> ApiKey:
    """The API a request class belongs to: its module is named after it."""
    return ApiKey[request.__module__.rpartition(".")[2].upper()]


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How a client talks on all its connections."""

    client_id: str = "barnabas"
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 10_000
    max_response_bytes: int = 256 * 1024 * 1024
    software_version: str = __version__


class _InFlight(NamedTuple):
    """A request whose response is awaited; without `decoded` the frame is wanted as it came."""

    correlation_id: int
    api_key: int
    version: int
    deadline: float
    future: asyncio.Future[Any]
    decoded: bool


class Connection(asyncio.BufferedProtocol):
    """Open one with `Connection.open`. All methods belong to the loop that opened it."""

    def __init__(self, host: str, port: int, options: ConnectionOptions, loop: asyncio.AbstractEventLoop) -> None:
        self.address = f"{host}:{port}"
        self.api_versions: dict[int, Versions] = {}
        self.closed = loop.create_future()
        """Done, with the reason as its result, once the connection is of no more use."""
        self._options = options
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._receive = ReceiveBuffer(options.max_response_bytes)
        self._in_flight: deque[_InFlight] = deque()
        self._next_correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    @classmethod
    async def open(cls, host: str, port: int, options: ConnectionOptions) -> Connection:
        """Connect and agree on versions. Raises BrokerUnreachableError or what the first request met."""
        loop = asyncio.get_running_loop()
        connection = cls(host, port, options, loop)
        try:
            async with asyncio.timeout(options.connect_timeout_ms / 1000):
                await loop.create_connection(lambda: connection, host, port)
        except TimeoutError:
            raise BrokerUnreachableError(
                f"cannot reach broker at {connection.address}: no answer in {options.connect_timeout_ms} ms"
            ) from None
        except OSError as error:
            reason = "connection refused" if "Connect call failed" in str(error) else error.strerror or str(error)
            raise BrokerUnreachableError(f"cannot reach broker at {connection.address}: {reason}") from error
        try:
            await connection._negotiate()
        except ProtocolError as error:
            connection.close()
            raise ConnectionLostError(f"broker {connection.address} sent no legal response: {error}") from error
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self.closed.done()

    @property
    def is_writable(self) -> bool:
        """Whether the transport wants more to write."""
        return self._writable.is_set()

    @property
    def in_flight_count(self) -> int:
        return len(self._in_flight)

    @staticmethod
    def api_key(request: Any) -> ApiKey:
        """The API a request message belongs to."""
        return _key_of(request.__class__)

    def supports(self, api_key: ApiKey, version: int = 0) -> bool:
        """Whether the broker speaks `version` (or a later one) of this API."""
        theirs = self.api_versions.get(api_key)
        return theirs is not None and theirs.last >= version

    def version_for(self, api_key: ApiKey, *, lowest: int = 0, highest: int = UNBOUNDED) -> int:
        """The newest version both sides speak within the bounds given. Raises UnsupportedVersionError."""
        ours = API_MESSAGES[api_key].versions
        bounds = Versions(max(ours.first, lowest), min(ours.last, highest))
        theirs = self.api_versions.get(api_key)
        version = None if theirs is None else negotiate(bounds, theirs)
        if version is None:
            raise UnsupportedVersionError(
                f"broker {self.address} does not serve {api_key.name} in versions {bounds.first} to {bounds.last}"
            )
        return version

    def send(
        self,
        request: Any,
        version: int | None = None,
        *,
        timeout_ms: int | None = None,
        expects_response: bool = True,
    ) -> asyncio.Future[Any]:
        """Write a request message; the future gives the decoded response.

        `version` None is the newest that both sides speak. Raises ConnectionLostError if the connection is closed,
        UnsupportedVersionError.
        """
        api_key = _key_of(request.__class__)
        if version is None:
            version = self.version_for(api_key)
        body = encode_request(request, version)
        return self._send(api_key, version, [body], timeout_ms, expects_response, decoded=True)

    def send_encoded(
        self, api_key: ApiKey, version: int, body: Sequence[Buffer], *, expects_response: bool = True
    ) -> asyncio.Future[memoryview]:
        """Write a request whose body is already bytes; the future gives the raw frame, header included."""
        return self._send(api_key, version, body, None, expects_response, decoded=False)

    async def writable(self) -> None:
        """Wait until the transport wants more to write."""
        await self._writable.wait()

    def close(self, reason: KafkaError | None = None) -> None:
        """End the connection and fail what is in flight."""
        if self.closed.done():
            return
        error = reason or ConnectionLostError(f"the connection to {self.address} was closed")
        self.closed.set_result(error)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
        self._writable.set()
        while self._in_flight:
            future = self._in_flight.popleft().future
            if not future.done():
                future.set_exception(error)
                # Who has asked and gone away, cancelled, is no reason to complain at exit (Python 3.13 does).
                future.exception()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance

    def connection_lost(self, exc: Exception | None) -> None:
        why = f": {exc}" if exc else ""
        self.close(ConnectionLostError(f"broker {self.address} closed the connection{why}"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receive.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._receive.received(nbytes):
                self._on_frame(frame)
        except ProtocolError as error:
            log.warning("broker %s sent bytes that are no Kafka response: %s", self.address, error)
            self.close(ConnectionLostError(f"broker {self.address} sent no legal response: {error}"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _send(
        self,
        api_key: ApiKey,
        version: int,
        body: Sequence[Buffer],
        timeout_ms: int | None,
        expects_response: bool,
        *,
        decoded: bool,
    ) -> asyncio.Future[Any]:
        if self._transport is None or self.closed.done():
            raise ConnectionLostError(f"the connection to {self.address} is closed")
        self._next_correlation_id = (self._next_correlation_id + 1) & 0x7FFFFFFF
        header = encode_request_header(
            RequestHeader(api_key, version, self._next_correlation_id, self._options.client_id)
        )
        size = len(header) + sum(map(len, body))
        future = self._loop.create_future()
        if expects_response:
            timeout = (self._options.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
            deadline = self._loop.time() + timeout
            self._in_flight.append(_InFlight(self._next_correlation_id, api_key, version, deadline, future, decoded))
            self._watch(deadline)
        else:
            future.set_result(None)
        self._transport.writelines([size.to_bytes(4, "big") + header, *body])
        return future

    def _on_frame(self, frame: memoryview) -> None:
        """Hand the response to the oldest request. That stays in flight until its response is known to be sound."""
        if not self._in_flight:
            raise ProtocolError("a response that nobody asked for")
        expected = self._in_flight[0]
        key, version = expected.api_key, expected.version
        correlation_id, position = decode_response_header(key, version, frame, 0, len(frame))
        if correlation_id != expected.correlation_id:
            raise ProtocolError(f"correlation id {correlation_id} where {expected.correlation_id} is due")
        awaited = not expected.future.done()
        decoded = expected.decoded and awaited
        response = decode_response(key, version, frame, position, len(frame)) if decoded else frame
        self._in_flight.popleft()
        if awaited:
            expected.future.set_result(response)

    def _watch(self, deadline: float) -> None:
        """See to it that the timer fires no later than `deadline`; one timer serves all requests."""
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if not self._in_flight:
            return
        now = self._loop.time()
        earliest = min(entry.deadline for entry in self._in_flight)
        if earliest > now:
            self._watch(earliest)
            return
        late = next(entry for entry in self._in_flight if entry.deadline <= now)
        api = ApiKey(late.api_key).name
        self.close(RequestTimeoutError(f"broker {self.address} did not answer a {api} request in time"))

    async def _negotiate(self) -> None:
        """Ask for the broker's versions; one that does not know our ApiVersions answers in version 0 (KIP-511)."""
        newest = API_MESSAGES[ApiKey.API_VERSIONS].versions.last
        request = ApiVersionsRequest(
            client_software_name="barnabas", client_software_version=self._options.software_version
        )
        response = await self._ask_versions(request, newest)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            response = await self._ask_versions(request, 0)
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(code_of(response.error_code), f"broker {self.address} refused to tell its versions")
        self.api_versions = {k.api_key: Versions(k.min_version, k.max_version) for k in response.api_keys}

    async def _ask_versions(self, request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
        body = encode_request(request, version)
        frame = await self.send_encoded(ApiKey.API_VERSIONS, version, [body])
        _, position = decode_response_header(ApiKey.API_VERSIONS, version, frame, 0, len(frame))
        refused = int.from_bytes(frame[position : position + 2], "big") == ErrorCode.UNSUPPORTED_VERSION
        response = decode_response(ApiKey.API_VERSIONS, 0 if refused else version, frame, position, len(frame))
        assert isinstance(response, ApiVersionsResponse)
        return response
