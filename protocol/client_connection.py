"""The client's side of one connection without I/O: versions, authentication, and responses matched to requests.

A shell owns the socket: it reports events (`connected`, `received`, `expired`, `lost`), writes the returned bytes, and
calls `close` after an error. The asyncio clients, Spark's blocking one and connections between brokers therefore share
one implementation. `TRANSITIONS` has the legal events of each state:

    CONNECTING   the socket is not connected yet
    NEGOTIATING  ApiVersions is in flight; a broker that does not support this version of it returns its own (KIP-511)
    HANDSHAKING  SaslHandshake selects the mechanism (KIP-43)
    CHALLENGED   SASL messages in SaslAuthenticate requests (KIP-152)
    BARE         SASL messages in frames without headers, for brokers with SaslHandshake 0 only
    READY        requests are sent and answered
    RENEWING     SaslHandshake selects the mechanism again, before a session expires (KIP-368)
    PROVING      SASL messages again; requests are held back, responses to earlier ones still arrive
    CLOSED       closed permanently

Requests are pipelined. A broker answers a connection's requests in order, so a queue pairs them, and an unexpected
correlation id is an error of the peer. When a response is late, later responses cannot arrive either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import Any, Generic, NamedTuple, TypeVar

from .apis import API_MESSAGES, ApiKey
from .codec import decode_response, encode_request
from .errors import (
    ConnectionLostError,
    ErrorCode,
    KafkaError,
    ProtocolError,
    RequestTimeoutError,
    UnsupportedVersionError,
    code_of,
)
from .headers import RequestHeader, decode_response_header, frame_request
from .messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from .messages.sasl_authenticate import SaslAuthenticateRequest
from .messages.sasl_handshake import SaslHandshakeRequest
from .negotiation import negotiate, versions_told
from .receive_buffer import FrameMemory, ReceiveBuffer
from .sasl import SaslExchange
from .schema import UNBOUNDED, Buffer, Versions

T = TypeVar("T")
_MAX_CORRELATION_ID = 0x7FFFFFFF
_FIRST_API_VERSIONS = 4
"""The version of ApiVersions in the first request. Brokers before Kafka 4.4 reject version 5, which costs each
connection another round trip; version 5 adds only the check of the cluster id and the node id (KIP-1242)."""


class ClientState(Enum):
    """The states of a connection; the module's docstring describes them."""

    CONNECTING = auto()
    NEGOTIATING = auto()
    HANDSHAKING = auto()
    CHALLENGED = auto()
    BARE = auto()
    READY = auto()
    RENEWING = auto()
    PROVING = auto()
    CLOSED = auto()


_READY = ClientState.READY
_AGAIN = (ClientState.RENEWING, ClientState.PROVING)


class ClientEvent(Enum):
    """The events of a connection."""

    CONNECTED = auto()
    VERSION_REFUSED = auto()
    SASL_DUE = auto()
    MECHANISM_TAKEN = auto()
    MECHANISM_TAKEN_BARE = auto()
    CHALLENGE = auto()
    ADMITTED = auto()
    END = auto()


TRANSITIONS: dict[ClientState, dict[ClientEvent, ClientState]] = {
    ClientState.CONNECTING: {
        ClientEvent.CONNECTED: ClientState.NEGOTIATING,
        ClientEvent.END: ClientState.CLOSED,
    },
    ClientState.NEGOTIATING: {
        ClientEvent.VERSION_REFUSED: ClientState.NEGOTIATING,
        ClientEvent.SASL_DUE: ClientState.HANDSHAKING,
        ClientEvent.ADMITTED: ClientState.READY,
        ClientEvent.END: ClientState.CLOSED,
    },
    ClientState.HANDSHAKING: {
        ClientEvent.MECHANISM_TAKEN: ClientState.CHALLENGED,
        ClientEvent.MECHANISM_TAKEN_BARE: ClientState.BARE,
        ClientEvent.END: ClientState.CLOSED,
    },
    ClientState.CHALLENGED: {
        ClientEvent.CHALLENGE: ClientState.CHALLENGED,
        ClientEvent.ADMITTED: ClientState.READY,
        ClientEvent.END: ClientState.CLOSED,
    },
    ClientState.BARE: {
        ClientEvent.CHALLENGE: ClientState.BARE,
        ClientEvent.ADMITTED: ClientState.READY,
        ClientEvent.END: ClientState.CLOSED,
    },
    ClientState.READY: {
        ClientEvent.SASL_DUE: ClientState.RENEWING,
        ClientEvent.END: ClientState.CLOSED,
    },
    ClientState.RENEWING: {
        ClientEvent.MECHANISM_TAKEN: ClientState.PROVING,
        ClientEvent.END: ClientState.CLOSED,
    },
    ClientState.PROVING: {
        ClientEvent.CHALLENGE: ClientState.PROVING,
        ClientEvent.ADMITTED: ClientState.READY,
        ClientEvent.END: ClientState.CLOSED,
    },
    ClientState.CLOSED: {ClientEvent.END: ClientState.CLOSED},
}

_IF_CLOSED_NOW = {
    ClientState.NEGOTIATING: (
        " after ApiVersions, as listeners with TLS or another security.protocol do, and Kafka before 0.10"
    ),
    ClientState.HANDSHAKING: " after the SASL mechanism was sent",
    ClientState.CHALLENGED: " during authentication",
    ClientState.BARE: " during authentication, as old brokers do if the password is wrong",
    ClientState.RENEWING: " during re-authentication",
    ClientState.PROVING: " during authentication",
}


@dataclass(frozen=True, slots=True)
class Introduction:
    """The name and version of the client's software, sent on each of its connections (KIP-511)."""

    client_id: str
    software_name: str
    software_version: str


class InFlight(NamedTuple):
    """A request in flight, and the shell's `token` for it; without `decoded` the frame is returned undecoded.

    `token` is None for the connection's own requests before it is ready.
    """

    correlation_id: int
    api_key: int
    version: int
    deadline: float
    token: Any
    decoded: bool


class ClientConnection(Generic[T]):
    """The client's side of a connection, without I/O. Not thread-safe.

    `T` is the caller's token of a request; `peer` is the broker's name in errors.
    """

    def __init__(
        self,
        peer: str,
        introduction: Introduction,
        *,
        max_response_bytes: int,
        max_in_flight: int | None = None,
        sasl: SaslExchange | None = None,
        room_behind: int = 0,
        memory: FrameMemory | None = None,
    ) -> None:
        """Without `sasl` there is no authentication. `room_behind` and `memory`: see `ReceiveBuffer`."""
        self.peer = peer
        self.state = ClientState.CONNECTING
        self.api_versions: dict[int, Versions] = {}
        self.features: dict[str, int] = {}
        """The finalized feature levels of the cluster (KIP-584)."""
        self.session_ms = 0
        """Lifetime of the authentication, before which `renew` is required; 0: unlimited (KIP-368)."""
        self._introduction = introduction
        self._sasl = sasl
        self._receive = ReceiveBuffer(max_response_bytes, room_behind=room_behind, memory=memory)
        self._in_flight: deque[InFlight] = deque()
        self._held: list[tuple[list[Buffer], InFlight | None]] = []
        """Requests that wait for an authentication, and will be in flight after it."""
        self._max_in_flight = inf if max_in_flight is None else max_in_flight
        self._correlation_id = 0
        self._outbox: list[Buffer] = []
        self._deadline = inf

    # Queries

    @property
    def is_ready(self) -> bool:
        """Return whether requests may be sent."""
        return self.state is _READY or self.state in _AGAIN

    @property
    def is_within_response(self) -> bool:
        """Return whether `buffer()` is memory of a response that has begun to arrive, and of no other bytes."""
        return self._receive.is_within_frame

    @property
    def in_flight_count(self) -> int:
        """Return the number of requests in flight."""
        return len(self._in_flight) + len(self._held)

    @property
    def has_room(self) -> bool:
        """Return whether fewer than `max_in_flight` are: for callers with many requests; others need not check."""
        return len(self._in_flight) + len(self._held) < self._max_in_flight

    @property
    def earliest_deadline(self) -> float:
        """Return the earliest time at which `expired` may return an error, in the shell's time; infinity: never."""
        held = [entry for _, entry in self._held if entry is not None]
        return min((entry.deadline for entry in (*self._in_flight, *held)), default=self._deadline)

    def supports(self, api_key: ApiKey, version: int = 0) -> bool:
        """Return whether the broker supports `version` (or a later one) of this API."""
        theirs = self.api_versions.get(api_key)
        return theirs is not None and theirs.last >= version

    def version_for(self, api_key: ApiKey, *, lowest: int = 0, highest: int = UNBOUNDED) -> int:
        """Return the newest common version within the given bounds. Raises UnsupportedVersionError."""
        ours = API_MESSAGES[api_key].versions
        bounds = Versions(max(ours.first, lowest), min(ours.last, highest))
        theirs = self.api_versions.get(api_key)
        version = None if theirs is None else negotiate(bounds, theirs)
        if version is None:
            raise UnsupportedVersionError(
                f"broker {self.peer} does not support {api_key.name} in versions {bounds.first} to {bounds.last}"
            )
        return version

    def buffer(self) -> memoryview:
        """Return the buffer for the next bytes of the socket; then call `received`."""
        return self._receive.buffer()

    # Requests

    def request(
        self, api_key: ApiKey, version: int, body: Sequence[Buffer], *, token: T, deadline: float, decoded: bool
    ) -> list[Buffer]:
        """Return the bytes of a request whose response belongs to `token`, decoded or as a frame with its header.

        Raises ConnectionLostError unless the connection is ready.
        """
        if self.state in _AGAIN:
            pieces = self._framed(api_key, version, body)
            self._held.append((pieces, InFlight(self._correlation_id, api_key, version, deadline, token, decoded)))
            return []
        pieces = self.request_without_response(api_key, version, body)
        self._in_flight.append(InFlight(self._correlation_id, api_key, version, deadline, token, decoded))
        return pieces

    def request_without_response(self, api_key: ApiKey, version: int, body: Sequence[Buffer]) -> list[Buffer]:
        """Return the bytes of a request without a response (Produce with acks=0). Raises as `request`."""
        if self.state in _AGAIN:
            self._held.append((self._framed(api_key, version, body), None))
            return []
        if self.state is not _READY:
            raise ConnectionLostError(f"the connection to {self.peer} is not open")
        return self._framed(api_key, version, body)

    def data_to_send(self) -> list[Buffer]:
        """Return the bytes that the connection itself sends.

        Call it after `connected` and, until it is ready, after `received`; and likewise after `renew`, until
        `is_renewed`.
        """
        data, self._outbox = self._outbox, []
        return data

    # Events

    def connected(self, deadline: float) -> None:
        """Process the connection of the socket; the connection must be ready by `deadline`."""
        self._enter(ClientEvent.CONNECTED)
        self._deadline = deadline
        self._ask_versions(_FIRST_API_VERSIONS)

    def renew(self, sasl: SaslExchange, deadline: float) -> None:
        """Authenticate again, by `deadline`; requests are held back from now on. Only when it is ready."""
        self._sasl, self._deadline = sasl, deadline
        self._enter(ClientEvent.SASL_DUE)
        self._name_mechanism(sasl)

    @property
    def is_renewed(self) -> bool:
        """Return whether the broker has authenticated the client, including a re-authentication."""
        return self.state is _READY

    def received(self, count: int) -> Iterator[tuple[T, Any]]:
        """Process this number of bytes in `buffer()`: return the complete responses, with their tokens.

        Raises ConnectionLostError if the bytes are not a valid response to the requests in flight, and KafkaError if
        the broker rejects ApiVersions or the authentication. A response remains in flight until it has been validated.
        """
        try:
            for frame in self._receive.received(count):
                if self.state is _READY or self._is_of_before():
                    yield self._answer(frame)
                elif self.state is not ClientState.CLOSED:
                    self._on_greeting(frame)
        except ProtocolError as error:
            raise ConnectionLostError(f"broker {self.peer} sent an invalid response: {error}") from error

    def expired(self, now: float) -> RequestTimeoutError | None:
        """Return the error to close with if a response is late, None if none is."""
        if self.earliest_deadline > now:
            return None
        entries = [*self._in_flight, *(entry for _, entry in self._held if entry is not None)]
        late = next((entry.api_key for entry in entries if entry.deadline <= now), ApiKey.SASL_AUTHENTICATE)
        return RequestTimeoutError(f"broker {self.peer} did not answer a {ApiKey(late).name} request in time")

    def lost(self, reason: str = "") -> ConnectionLostError:
        """Return the error to close with when the peer has closed the connection."""
        why = _IF_CLOSED_NOW.get(self.state, "") + (f": {reason}" if reason else "")
        return ConnectionLostError(f"broker {self.peer} closed the connection{why}")

    def close(self) -> list[T]:
        """Close; return the tokens of requests that will have no response."""
        self._enter(ClientEvent.END)
        entries = [*self._in_flight, *(entry for _, entry in self._held if entry is not None)]
        tokens = [entry.token for entry in entries if entry.token is not None]
        self._in_flight.clear()
        self._held.clear()
        self._outbox.clear()
        self._deadline = inf
        return tokens

    # Internals

    def _enter(self, event: ClientEvent) -> None:
        self.state = TRANSITIONS[self.state][event]

    def _framed(self, api_key: int, version: int, body: Sequence[Buffer]) -> list[Buffer]:
        """Return the bytes of a request with the next correlation id."""
        self._correlation_id = correlation_id = (self._correlation_id + 1) & _MAX_CORRELATION_ID
        return frame_request(RequestHeader(api_key, version, correlation_id, self._introduction.client_id), body)

    def _is_of_before(self) -> bool:
        """Return whether the next response is to a request from before the re-authentication."""
        return self.state in _AGAIN and bool(self._in_flight) and self._in_flight[0].token is not None

    def _answer(self, frame: memoryview) -> tuple[T, Any]:
        """Decode the response to the oldest request."""
        entry, position = self._expected(frame)
        key, version = entry.api_key, entry.version
        response = decode_response(key, version, frame, position, len(frame)) if entry.decoded else frame
        self._in_flight.popleft()
        return entry.token, response

    def _expected(self, frame: memoryview) -> tuple[InFlight, int]:
        """Return the request of this response, and the start of the response's body. Raises ProtocolError."""
        if not self._in_flight:
            raise ProtocolError("a response without a request")
        entry = self._in_flight[0]
        correlation_id, position = decode_response_header(entry.api_key, entry.version, frame, 0, len(frame))
        if correlation_id != entry.correlation_id:
            raise ProtocolError(f"correlation id {correlation_id}, expected {entry.correlation_id}")
        return entry, position

    def _ask(self, api_key: ApiKey, version: int, request: object) -> None:
        """Send one of the connection's own requests."""
        self._outbox += self._framed(api_key, version, [encode_request(request, version)])
        self._in_flight.append(InFlight(self._correlation_id, api_key, version, self._deadline, None, True))

    def versions_request(self) -> ApiVersionsRequest:
        """Return a request for the APIs and the features of the broker, with the names of this software."""
        me = self._introduction
        return ApiVersionsRequest(client_software_name=me.software_name, client_software_version=me.software_version)

    def _ask_versions(self, version: int) -> None:
        self._ask(ApiKey.API_VERSIONS, version, self.versions_request())

    def _on_greeting(self, frame: memoryview) -> None:
        """Process a response before the connection is ready."""
        if self.state is ClientState.BARE:
            self._go_on(bytes(frame))
        elif self.state is ClientState.NEGOTIATING:
            self._on_versions(frame)
        else:
            _, response = self._answer(frame)
            if self.state in (ClientState.HANDSHAKING, ClientState.RENEWING):
                self._on_mechanism(response)
            else:
                self._on_challenge(response)

    def _on_versions(self, frame: memoryview) -> None:
        """Handle a version of ApiVersions that the broker does not support, which it rejects in version 0."""
        entry, position = self._expected(frame)
        refused = int.from_bytes(frame[position : position + 2], "big") == ErrorCode.UNSUPPORTED_VERSION
        version = 0 if refused else entry.version
        response: ApiVersionsResponse = decode_response(ApiKey.API_VERSIONS, version, frame, position, len(frame))
        self._in_flight.popleft()
        if refused and entry.version > 0:
            told = versions_told(response).get(ApiKey.API_VERSIONS, Versions(0, 0))
            again = negotiate(Versions(0, entry.version - 1), told)
            self._enter(ClientEvent.VERSION_REFUSED)
            self._ask_versions(0 if again is None else again)
        elif response.error_code != ErrorCode.NONE:
            raise KafkaError(code_of(response.error_code), f"broker {self.peer} rejected ApiVersions")
        else:
            self.api_versions = versions_told(response)
            self.features = {one.name: one.max_version_level for one in response.finalized_features}
            self._on_versions_known()

    def _on_versions_known(self) -> None:
        if self._sasl is None:
            self._admitted()
            return
        self._enter(ClientEvent.SASL_DUE)
        self._name_mechanism(self._sasl)

    def _name_mechanism(self, sasl: SaslExchange) -> None:
        version = self.version_for(ApiKey.SASL_HANDSHAKE)
        self._ask(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism=sasl.mechanism))

    def _on_mechanism(self, response: Any) -> None:
        assert self._sasl is not None
        if response.error_code != ErrorCode.NONE:
            offered = ", ".join(response.mechanisms)
            reason = f"broker {self.peer} does not offer {self._sasl.mechanism}. Set sasl.mechanism to one of {offered}"
            raise KafkaError(code_of(response.error_code), reason)
        is_bare = self.version_for(ApiKey.SASL_HANDSHAKE) == 0
        self._enter(ClientEvent.MECHANISM_TAKEN_BARE if is_bare else ClientEvent.MECHANISM_TAKEN)
        self._say(next(self._sasl.messages))

    def _on_challenge(self, response: Any) -> None:
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(code_of(response.error_code), response.error_message or "authentication failed")
        self.session_ms = response.session_lifetime_ms
        self._go_on(response.auth_bytes)

    def _go_on(self, challenge: bytes) -> None:
        """Continue the authentication with the broker's message, or complete it after the last one."""
        assert self._sasl is not None
        try:
            message = self._sasl.messages.send(challenge)
        except StopIteration:
            self._admitted()
            return
        self._enter(ClientEvent.CHALLENGE)
        self._say(message)

    def _say(self, message: bytes) -> None:
        if self.state is ClientState.BARE:
            self._outbox += [len(message).to_bytes(4, "big") + message]
        else:
            version = self.version_for(ApiKey.SASL_AUTHENTICATE)
            self._ask(ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=message))

    def _admitted(self) -> None:
        self._enter(ClientEvent.ADMITTED)
        self._deadline = inf
        for pieces, entry in self._held:
            self._outbox += pieces
            if entry is not None:
                self._in_flight.append(entry)
        self._held.clear()
