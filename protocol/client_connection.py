"""The client's side of one connection without I/O: versions, authentication, and responses matched to requests.

A shell owns the socket: it says what happened (`connected`, `received`, `expired`, `lost`), writes what it is given,
and calls `close` when it was told an error. So the asyncio clients, Spark's blocking one and brokers that talk to
brokers are the same client. What may happen when is `TRANSITIONS`:

    CONNECTING   the socket is not connected yet
    NEGOTIATING  ApiVersions is asked; a broker that does not know our version of it says which it knows (KIP-511)
    HANDSHAKING  SaslHandshake names the mechanism (KIP-43)
    CHALLENGED   SASL messages in SaslAuthenticate requests (KIP-152)
    BARE         SASL messages in frames without headers, as brokers want them that know SaslHandshake 0 only
    READY        requests are sent and answered
    RENEWING     SaslHandshake names the mechanism again, before a session ends (KIP-368)
    PROVING      SASL messages again; requests are held back meanwhile, responses to earlier ones still come
    CLOSED       of no more use

Requests are pipelined. A broker answers a connection's requests in the order they came, so a queue pairs them, and a
correlation id out of order is a broken peer. When a response is late, nothing behind it can arrive either.
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
from .receive_buffer import ReceiveBuffer
from .sasl import SaslExchange
from .schema import UNBOUNDED, Buffer, Versions

T = TypeVar("T")
_MAX_CORRELATION_ID = 0x7FFFFFFF


class ClientState(Enum):
    """Where a connection stands; the module's docstring says what each means."""

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
    """What moves a connection on."""

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
        " when it was asked for its versions, as listeners do that want TLS or another security.protocol,"
        " and Kafka before 0.10"
    ),
    ClientState.HANDSHAKING: " when it was told the SASL mechanism",
    ClientState.CHALLENGED: " during authentication",
    ClientState.BARE: " during authentication, as old brokers do if the password is wrong",
    ClientState.RENEWING: " when it was to prove again who it is",
    ClientState.PROVING: " during authentication",
}


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a client says of itself on each of its connections (KIP-511)."""

    client_id: str
    software_name: str
    software_version: str


class InFlight(NamedTuple):
    """A request whose response is awaited, and the shell's `token` for it; without `decoded` the frame is handed on as
    it came.

    `token` is None for the requests that the connection makes by itself before it is ready.
    """

    correlation_id: int
    api_key: int
    version: int
    deadline: float
    token: Any
    decoded: bool


class ClientConnection(Generic[T]):
    """Not for several threads at once. `T` is what the shell knows a request by; `peer` names the broker in errors."""

    def __init__(
        self,
        peer: str,
        introduction: Introduction,
        *,
        max_response_bytes: int,
        max_in_flight: int | None = None,
        sasl: SaslExchange | None = None,
        room_behind: int = 0,
    ) -> None:
        """Without `sasl` nobody is authenticated. `room_behind`: see `ReceiveBuffer`."""
        self.peer = peer
        self.state = ClientState.CONNECTING
        self.api_versions: dict[int, Versions] = {}
        self.features: dict[str, int] = {}
        """The cluster's features and their finalized levels (KIP-584)."""
        self.session_ms = 0
        """For how long the broker believes the authentication: `renew` it before that; 0: for ever (KIP-368)."""
        self._introduction = introduction
        self._sasl = sasl
        self._receive = ReceiveBuffer(max_response_bytes, room_behind=room_behind)
        self.buffer = self._receive.buffer
        """Where the next bytes from the socket go; then call `received`."""
        self._in_flight: deque[InFlight] = deque()
        self._held: list[tuple[list[Buffer], InFlight | None]] = []
        """Requests that wait for an authentication, and what will be in flight with them."""
        self._max_in_flight = inf if max_in_flight is None else max_in_flight
        self._correlation_id = 0
        self._outbox: list[Buffer] = []
        self._deadline = inf

    # Questions

    @property
    def is_ready(self) -> bool:
        """Whether requests may be sent."""
        return self.state is _READY or self.state in _AGAIN

    @property
    def in_flight_count(self) -> int:
        """Requests whose response is awaited."""
        return len(self._in_flight) + len(self._held)

    @property
    def has_room(self) -> bool:
        """Whether fewer than `max_in_flight` are: for callers with much to send; others need not ask."""
        return len(self._in_flight) + len(self._held) < self._max_in_flight

    @property
    def earliest_deadline(self) -> float:
        """When `expired` will have something to say at the earliest, in the shell's time; infinity: never."""
        held = [entry for _, entry in self._held if entry is not None]
        return min((entry.deadline for entry in (*self._in_flight, *held)), default=self._deadline)

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
                f"broker {self.peer} does not serve {api_key.name} in versions {bounds.first} to {bounds.last}"
            )
        return version

    # Requests

    def request(
        self, api_key: ApiKey, version: int, body: Sequence[Buffer], *, token: T, deadline: float, decoded: bool
    ) -> list[Buffer]:
        """The bytes of a request whose response will be `token`'s, decoded or as a frame with its header.

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
        """The bytes of a request that is not answered (Produce with acks=0). Raises as `request`."""
        if self.state in _AGAIN:
            self._held.append((self._framed(api_key, version, body), None))
            return []
        if self.state is not _READY:
            raise ConnectionLostError(f"the connection to {self.peer} is not open")
        return self._framed(api_key, version, body)

    def data_to_send(self) -> list[Buffer]:
        """What the connection itself wants to send now.

        Look after `connected` and, until it is ready, `received`; and likewise after `renew`, until it `is_renewed`.
        """
        data, self._outbox = self._outbox, []
        return data

    # Events

    def connected(self, deadline: float) -> None:
        """The socket is connected; the connection is to be ready by `deadline`."""
        self._enter(ClientEvent.CONNECTED)
        self._deadline = deadline
        self._ask_versions(API_MESSAGES[ApiKey.API_VERSIONS].versions.last)

    def renew(self, sasl: SaslExchange, deadline: float) -> None:
        """Prove again who the client is, by `deadline`; requests are held back from now on. Only when it is ready."""
        self._sasl, self._deadline = sasl, deadline
        self._enter(ClientEvent.SASL_DUE)
        self._name_mechanism(sasl)

    @property
    def is_renewed(self) -> bool:
        """Whether the broker has let the client in, again if it was to prove who it is again."""
        return self.state is _READY

    def received(self, count: int) -> Iterator[tuple[T, Any]]:
        """So many bytes are in `buffer()`: the responses that are complete, with their tokens.

        Raises ConnectionLostError if the bytes are no legal response to what is in flight, and KafkaError if the broker
        refuses to tell its versions or to authenticate. A response stays in flight until it is known to be sound.
        """
        try:
            for frame in self._receive.received(count):
                if self.state is _READY or self._is_of_before():
                    yield self._answer(frame)
                elif self.state is not ClientState.CLOSED:
                    self._on_greeting(frame)
        except ProtocolError as error:
            raise ConnectionLostError(f"broker {self.peer} sent no legal response: {error}") from error

    def expired(self, now: float) -> RequestTimeoutError | None:
        """What to close with if a response is late, None if none is."""
        if self.earliest_deadline > now:
            return None
        entries = [*self._in_flight, *(entry for _, entry in self._held if entry is not None)]
        late = next((entry.api_key for entry in entries if entry.deadline <= now), ApiKey.SASL_AUTHENTICATE)
        return RequestTimeoutError(f"broker {self.peer} did not answer a {ApiKey(late).name} request in time")

    def lost(self, reason: str = "") -> ConnectionLostError:
        """What to close with when the other side has ended the connection."""
        why = _IF_CLOSED_NOW.get(self.state, "") + (f": {reason}" if reason else "")
        return ConnectionLostError(f"broker {self.peer} closed the connection{why}")

    def close(self) -> list[T]:
        """End; returns the tokens of requests that will have no response."""
        self._enter(ClientEvent.END)
        entries = [*self._in_flight, *(entry for _, entry in self._held if entry is not None)]
        tokens = [entry.token for entry in entries if entry.token is not None]
        self._in_flight.clear()
        self._held.clear()
        self._outbox.clear()
        self._deadline = inf
        return tokens

    # Inside

    def _enter(self, event: ClientEvent) -> None:
        self.state = TRANSITIONS[self.state][event]

    def _framed(self, api_key: int, version: int, body: Sequence[Buffer]) -> list[Buffer]:
        """The bytes of a request under the next correlation id."""
        self._correlation_id = correlation_id = (self._correlation_id + 1) & _MAX_CORRELATION_ID
        return frame_request(RequestHeader(api_key, version, correlation_id, self._introduction.client_id), body)

    def _is_of_before(self) -> bool:
        """Whether the next response is to a request of before the authentication that is under way."""
        return self.state in _AGAIN and bool(self._in_flight) and self._in_flight[0].token is not None

    def _answer(self, frame: memoryview) -> tuple[T, Any]:
        """The response to the oldest request."""
        entry, position = self._expected(frame)
        key, version = entry.api_key, entry.version
        response = decode_response(key, version, frame, position, len(frame)) if entry.decoded else frame
        self._in_flight.popleft()
        return entry.token, response

    def _expected(self, frame: memoryview) -> tuple[InFlight, int]:
        """The request this must be the response to, and where the response's body begins. Raises ProtocolError."""
        if not self._in_flight:
            raise ProtocolError("a response that nobody asked for")
        entry = self._in_flight[0]
        correlation_id, position = decode_response_header(entry.api_key, entry.version, frame, 0, len(frame))
        if correlation_id != entry.correlation_id:
            raise ProtocolError(f"correlation id {correlation_id} where {entry.correlation_id} is due")
        return entry, position

    def _ask(self, api_key: ApiKey, version: int, request: object) -> None:
        """Send a request of the connection's own."""
        self._outbox += self._framed(api_key, version, [encode_request(request, version)])
        self._in_flight.append(InFlight(self._correlation_id, api_key, version, self._deadline, None, True))

    def _ask_versions(self, version: int) -> None:
        me = self._introduction
        request = ApiVersionsRequest(client_software_name=me.software_name, client_software_version=me.software_version)
        self._ask(ApiKey.API_VERSIONS, version, request)

    def _on_greeting(self, frame: memoryview) -> None:
        """Take in what the broker says before the connection is ready."""
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
        """A version of ApiVersions that the broker does not know is refused in version 0."""
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
            raise KafkaError(code_of(response.error_code), f"broker {self.peer} refused to tell its versions")
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
            raise KafkaError(code_of(response.error_code), f"broker {self.peer} offers SASL mechanisms {offered}")
        is_bare = self.version_for(ApiKey.SASL_HANDSHAKE) == 0
        self._enter(ClientEvent.MECHANISM_TAKEN_BARE if is_bare else ClientEvent.MECHANISM_TAKEN)
        self._say(next(self._sasl.messages))

    def _on_challenge(self, response: Any) -> None:
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(code_of(response.error_code), response.error_message or "authentication failed")
        self.session_ms = response.session_lifetime_ms
        self._go_on(response.auth_bytes)

    def _go_on(self, challenge: bytes) -> None:
        """Answer what the broker says in the authentication, or be admitted if it was the last."""
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
