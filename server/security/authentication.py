"""One client's authentication: Kafka's SaslServerAuthenticator apart from the socket."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

from ...protocol.apis import ApiKey
from ...protocol.errors import ErrorCode, KafkaError, ProtocolError
from ...protocol.room_logger import room_logger
from ...protocol.sasl_server import failed
from ...protocol.server_connection import AUTHENTICATING, AWAITED, AuthenticationEvent, AuthenticationState
from .session import KafkaPrincipal

if TYPE_CHECKING:
    from .sasl_listener import SaslListener, Step
    from .session import Session

logger = room_logger("security")

MOST_GREETINGS = 4
"""ApiVersions requests of a client that has not agreed on a version: one too new, one that fits, and some patience."""
MOST_MESSAGES = 8
"""Of a client in one authentication."""
SECONDS = 30.0
"""From the name of a mechanism to the last message: a challenge is by a password or token of its time."""
_State, _Event = AuthenticationState, AuthenticationEvent


class SaslAuthentication:
    """Of one connection. Loop-thread only. `admitted` is called when its client is first known.

    The session has it, and so is told to it: if each held the other, both would outlive the connection.
    """

    def __init__(self, listener: SaslListener, now: Callable[[], float]) -> None:
        self.state = _State.UNKNOWN
        self.admitted: Callable[[], None] | None = None
        self.ends_at: float | None = None
        """Loop time from which on nothing is believed any more unless the client proves again who it is."""
        self._listener = listener
        self._now = now
        self._mechanism = ""
        self._exchange: AsyncGenerator[Step, bytes] | None = None
        self._greetings = 0
        self._messages = 0
        self._until = 0.0
        """Loop time at which the exchange has to be over."""

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """By which the client may prove who it is."""
        return self._listener.mechanisms

    @property
    def is_bare(self) -> bool:
        """Whether frames are SASL messages, and no requests."""
        return self.state is _State.BARE

    @property
    def failure_delay(self) -> float:
        """Seconds before a client hears that it failed."""
        return self._listener.failure_delay

    def check(self, api_key: int) -> None:
        """A request arrives. Raises ProtocolError if the connection has to end."""
        if self.state:
            if api_key not in AWAITED[self.state]:
                raise ProtocolError(f"unexpected Kafka request with key {api_key} before the client is authenticated")
            if api_key == ApiKey.API_VERSIONS:
                self._greetings += 1
                if self._greetings > MOST_GREETINGS:
                    raise ProtocolError("a client that asks for versions and nothing else")
        elif self.ends_at is not None and self._now() >= self.ends_at and api_key != ApiKey.SASL_HANDSHAKE:
            raise ProtocolError("the session is over, and the client has not authenticated again")

    async def begin(self, mechanism: str, *, bare: bool) -> tuple[str, ...] | None:
        """A mechanism is named: None if it may go on by it, else those that there are.

        Raises KafkaError ILLEGAL_SASL_STATE if nothing of that kind is awaited.
        """
        is_again = self.state is _State.ADMITTED
        if is_again and (bare or self.ends_at is None):
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake request received after authentication")
        offered = self._listener.mechanisms
        if mechanism not in offered or (is_again and mechanism != self._mechanism):
            self.state = _State.REFUSED
            return offered
        self._on(_Event.MECHANISM_BARE if bare else _Event.MECHANISM)
        self._mechanism, self._messages, self._until = mechanism, 0, self._now() + SECONDS
        self._exchange = self._listener.exchange(mechanism)
        await anext(self._exchange)
        return None

    async def go_on(self, session: Session, message: bytes) -> tuple[bytes, int]:
        """The answer to a client's message, and for how many ms it is believed after that, 0 for ever or not yet.

        Raises KafkaError: SASL_AUTHENTICATION_FAILED, upon which the connection ends, or ILLEGAL_SASL_STATE.
        """
        if self._exchange is None:
            text = "SaslAuthenticate request received after successful authentication"
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, text)
        try:
            self._messages += 1
            if self._messages > MOST_MESSAGES:
                raise failed("Authentication failed: too many messages")
            if self._now() > self._until:
                raise failed("Authentication failed: it took too long")
            step = await self._exchange.asend(message)
            if step.username is None:
                self._on(_Event.CHALLENGE)
                return step.answer, 0
            return step.answer, self._succeed(session, step, step.username)
        except KafkaError as error:
            self.state = _State.REFUSED
            self._exchange = None
            logger.debug("%s failed to authenticate by %s: %s", session.client_host, self._mechanism, error)
            raise

    def give_up(self) -> None:
        """The client is gone."""
        self.admitted = self._exchange = None

    def _succeed(self, session: Session, step: Step, username: str) -> int:
        principal = KafkaPrincipal("User", username)
        if self.ends_at is not None and principal != session.principal:
            present = session.principal.name
            raise failed(f"Cannot change principals during re-authentication from {present}: {username}")
        self._on(_Event.SUCCESS)
        self._exchange = None
        session.principal = principal
        session.is_by_token = step.is_by_token
        limits = [ms for ms in (self._listener.most_session_ms or None, step.lifetime_ms) if ms is not None]
        lifetime_ms = max(1, min(limits)) if limits else 0
        self.ends_at = self._now() + lifetime_ms / 1000 if limits else None
        if self.admitted is not None:
            self.admitted()
            self.admitted = None
        return lifetime_ms

    def _on(self, event: AuthenticationEvent) -> None:
        self.state = AUTHENTICATING[self.state][event]
