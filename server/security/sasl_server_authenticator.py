"""The SASL authentication of one client: Kafka's SaslServerAuthenticator without its socket."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

from ...common.room_logger import room_logger
from ...protocol.apis import ApiKey
from ...protocol.errors import ErrorCode, KafkaError, ProtocolError
from ...protocol.sasl_server import LARGEST_MESSAGE_BYTES, failed
from ...protocol.server_connection import AUTHENTICATING, AWAITED, SaslEvent, SaslState
from .sasl_listener import UNSUPPORTED
from .session import KafkaPrincipal

if TYPE_CHECKING:
    from .sasl_listener import SaslListener, SaslResponse
    from .session import Session

logger = room_logger("security")

MAX_VERSIONS_REQUESTS = 4
"""ApiVersions requests before SaslHandshake: a client sends one, or two if the first version is too new."""
MAX_MESSAGES = 8
"""SASL messages of a client in one authentication."""
EXCHANGE_SECONDS = 30.0
"""The time from SaslHandshake to the last message: the credential of the challenge may have changed after that."""
_State, _Event = SaslState, SaslEvent
_API_KEYS = frozenset(ApiKey)


class SaslServerAuthenticator:
    """The state of one connection's authentication, owned by its session and used on the loop's thread only.

    Methods get the session as an argument: a reference to it would be a cycle that outlives the connection.
    """

    def __init__(self, listener: SaslListener, now: Callable[[], float]) -> None:
        self.state = _State.HANDSHAKE_OR_VERSIONS_REQUEST
        self.on_authenticated: Callable[[], None] | None = None
        """Called when the client is authenticated for the first time."""
        self.on_mechanism_chosen: Callable[[str], None] | None = None
        """Called with the mechanism of a client that is not authenticated yet."""
        self.ends_at: float | None = None
        """Loop time at which the session expires unless the client authenticates again (KIP-368); None: never."""
        self._listener = listener
        self._now = now
        self._mechanism = ""
        self._exchange: AsyncGenerator[SaslResponse, bytes] | None = None
        self._versions_requests = 0
        self._messages = 0
        self._deadline = 0.0
        """Loop time at which the exchange times out."""

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms of the listener."""
        return self._listener.mechanisms

    @property
    def is_raw(self) -> bool:
        """Whether frames are raw SASL messages instead of requests (after SaslHandshake 0)."""
        return self.state is _State.AUTHENTICATE_RAW

    @property
    def permits_requests(self) -> bool:
        """Whether the client is authenticated and its session has not expired: `check` accepts any request."""
        return not self.state and (self.ends_at is None or self._now() < self.ends_at)

    @property
    def failure_delay(self) -> float:
        """Seconds before a client gets the response to a failed authentication."""
        return self._listener.failure_delay

    def check(self, api_key: int) -> None:
        """Check a request that arrives.

        Raises KafkaError ILLEGAL_SASL_STATE for a request between SaslHandshake and the end of the authentication that
        is not SaslAuthenticate: it is answered with that error before the connection is closed. Raises ProtocolError
        where Kafka closes the connection without a response. Source: SaslServerAuthenticator.handleSaslToken.
        """
        if self.state:
            if self.state is _State.AUTHENTICATE and api_key != ApiKey.SASL_AUTHENTICATE and api_key in _API_KEYS:
                self._on_event(_Event.FAILURE)
                self._exchange = None
                name = ApiKey(api_key).name
                text = f"Unexpected Kafka request of type {name} during SASL authentication."
                raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, text)
            if api_key not in AWAITED[self.state]:
                raise ProtocolError(f"unexpected Kafka request with key {api_key} before the client is authenticated")
            if api_key == ApiKey.API_VERSIONS:
                self._versions_requests += 1
                if self._versions_requests > MAX_VERSIONS_REQUESTS:
                    raise ProtocolError(f"more than {MAX_VERSIONS_REQUESTS} ApiVersions requests before SaslHandshake")
        elif not self.permits_requests and api_key != ApiKey.SASL_HANDSHAKE:
            raise ProtocolError("the session has expired, and the client has not authenticated again")

    async def begin_exchange(self, mechanism: str, *, raw: bool) -> tuple[str, ...] | None:
        """Begin the exchange of a mechanism. Return None, or the supported mechanisms if it is not one of them.

        Raises KafkaError ILLEGAL_SASL_STATE if no authentication may begin now.
        """
        is_again = self.state is _State.COMPLETE
        if is_again and (raw or self.ends_at is None):
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake request received after authentication")
        offered = self._listener.mechanisms
        if mechanism not in offered or (is_again and mechanism != self._mechanism):
            self._on_event(_Event.FAILURE)
            self._listener.count_failure(mechanism if mechanism in offered else UNSUPPORTED)
            return offered
        self._on_event(_Event.MECHANISM_BARE if raw else _Event.MECHANISM)
        self._mechanism, self._messages, self._deadline = mechanism, 0, self._now() + EXCHANGE_SECONDS
        if self.on_mechanism_chosen is not None:
            self.on_mechanism_chosen(mechanism)
        self._exchange = self._listener.exchange(mechanism)
        await anext(self._exchange)
        return None

    async def evaluate_response(self, session: Session, message: bytes) -> tuple[bytes, int]:
        """Return the next challenge for a client's message, and the lifetime of the session in ms.

        The lifetime is 0 for a session without end, and before the client is authenticated. Raises KafkaError:
        SASL_AUTHENTICATION_FAILED, after which the caller closes the connection, or ILLEGAL_SASL_STATE.
        """
        if self._exchange is None:
            text = "SaslAuthenticate request received after successful authentication"
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, text)
        try:
            self._messages += 1
            if self._messages > MAX_MESSAGES:
                raise failed("Authentication failed: too many messages")
            if len(message) > LARGEST_MESSAGE_BYTES[self._mechanism]:
                raise failed("Authentication failed: the message is too large")
            if self._now() > self._deadline:
                raise failed("Authentication failed: it took too long")
            response = await self._exchange.asend(message)
            if response.username is None:
                self._on_event(_Event.CHALLENGE)
                return response.challenge, 0
            return response.challenge, self._complete(session, response, response.username)
        except KafkaError as error:
            self._on_event(_Event.FAILURE)
            self._exchange = None
            self._listener.count_failure(self._mechanism)
            self._listener.failure_log.write(
                logging.INFO, "%s failed to authenticate by %s: %s", session.client_host, self._mechanism, error
            )
            raise

    def cancel(self) -> None:
        """Drop the exchange of a closed connection."""
        self.on_authenticated = self.on_mechanism_chosen = self._exchange = None

    def _complete(self, session: Session, response: SaslResponse, username: str) -> int:
        principal = KafkaPrincipal("User", username)
        if self.ends_at is not None and principal != session.principal:
            present = session.principal.name
            raise failed(f"Cannot change principals during re-authentication from {present}: {username}")
        self._on_event(_Event.SUCCESS)
        self._exchange = None
        session.principal = principal
        session.is_by_token = response.is_by_token
        limits = [ms for ms in (self._listener.max_session_ms or None, response.lifetime_ms) if ms is not None]
        lifetime_ms = max(1, min(limits)) if limits else 0
        self.ends_at = self._now() + lifetime_ms / 1000 if limits else None
        if self.on_authenticated is not None:
            self.on_authenticated()
            self.on_authenticated = self.on_mechanism_chosen = None
        return lifetime_ms

    def _on_event(self, event: SaslEvent) -> None:
        self.state = AUTHENTICATING[self.state][event]
