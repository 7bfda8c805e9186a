"""What a listener asks of clients that say who they are: its mechanisms, passwords, and for how long they are believed.

Settings are read where they are used, so that a password that was changed counts from the next authentication on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from ...protocol.jaas import jaas_options
from ...protocol.room_logger import room_logger
from ...protocol.sasl import GSSAPI, MECHANISMS, OAUTHBEARER
from ...protocol.sasl_server import (
    BEARER_REFUSED,
    ScramCredential,
    check_plain,
    failed,
    read_bearer,
    read_plain,
    read_scram_first,
    scram,
    stand_in,
)
from ..config.keys.validators import ConfigError
from ..metadata.metadata_store import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from ..config.broker_config import BrokerConfig
    from ..metadata.scram_store import ScramStore
    from ..runtime.ports import Ports
    from .bearer_tokens import TokenValidator
    from .delegation_tokens import DelegationTokens
    from .kerberos import KerberosAcceptor

logger = room_logger("security")

PLAIN = "PLAIN"
NONCE_BYTES = 24
_USER = "user_"


class Step(NamedTuple):
    """What the broker says next."""

    answer: bytes
    username: str | None = None
    """Who the client has proved to be; None while it has not."""
    lifetime_ms: int | None = None
    """For how long what the client showed is valid; None if it does not say."""
    is_by_token: bool = False
    """Whether that was a delegation token."""


class Knowledge(NamedTuple):
    """By what a broker knows users who are not named in its configuration."""

    scram: ScramStore
    tokens: DelegationTokens
    ports: Ports
    now: Callable[[], float]
    """The loop's time."""


class SaslListener:
    """Of one listener. Loop-thread only."""

    def __init__(self, config: BrokerConfig, listener: str, known: Knowledge) -> None:
        """Raises ConfigError if it asks for what cannot be served."""
        self._config = config
        self._listener = listener
        self._known = known
        self._token_bytes = known.ports.token_bytes
        self._secret = known.ports.token_bytes(32)
        self._tokens: TokenValidator | None = None
        self._kerberos: KerberosAcceptor | None = None
        key = "sasl.enabled.mechanisms"
        for mechanism in self.mechanisms:
            if mechanism not in MECHANISMS:
                reason = f"listener {listener}: SASL mechanism {mechanism} is none of {', '.join(MECHANISMS)}"
                raise ConfigError(key, ",".join(self.mechanisms), reason)
        if not self.mechanisms:
            raise ConfigError(key, "", f"listener {listener} asks for SASL and has no mechanism")
        if PLAIN in self.mechanisms and not self._passwords():
            reason = 'mechanism PLAIN is enabled and no user_NAME="password" is given'
            raise ConfigError(self._jaas_key(PLAIN), None, reason)
        if OAUTHBEARER in self.mechanisms:
            self._tokens = self._validator()
        if GSSAPI in self.mechanisms:
            self._kerberos = self._acceptor()

    def _validator(self) -> TokenValidator:
        try:
            from .bearer_tokens import TokenValidator
        except ImportError:
            reason = f"listener {self._listener}: for {OAUTHBEARER} pip install 'barnabas[oauth]'"
            raise ConfigError("sasl.enabled.mechanisms", ",".join(self.mechanisms), reason) from None
        ports = self._known.ports
        return TokenValidator(self._config, self._listener, ports.work, self._known.now, ports.now_ms)

    def _acceptor(self) -> KerberosAcceptor:
        try:
            from .kerberos import KerberosAcceptor
        except ImportError:
            reason = f"listener {self._listener}: for {GSSAPI} pip install 'barnabas[gssapi]'"
            raise ConfigError("sasl.enabled.mechanisms", ",".join(self.mechanisms), reason) from None
        return KerberosAcceptor(self._config, self._listener, self._known.ports.work, self._known.now)

    async def close(self) -> None:
        """Look for nothing any more."""
        if self._tokens is not None:
            await self._tokens.close()

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """By which clients may prove who they are."""
        names = cast("tuple[str, ...]", self._config.listener_value(self._listener, "sasl.enabled.mechanisms"))
        return tuple(name.strip().upper() for name in names if name.strip())

    @property
    def most_session_ms(self) -> int:
        """After so long a client has to prove again who it is; 0: never (KIP-368)."""
        return cast(int, self._config.listener_value(self._listener, "connections.max.reauth.ms"))

    @property
    def failure_delay(self) -> float:
        """Seconds before a client hears that it failed."""
        return self._config.connection_failed_authentication_delay_ms / 1000

    def exchange(self, mechanism: str) -> AsyncGenerator[Step, bytes]:
        """Begin one: `asend(None)`, then each of the client's messages. Raises KafkaError when the client fails."""
        if mechanism == OAUTHBEARER:
            return self._bearer()
        if mechanism == GSSAPI:
            return self._ticket()
        return self._plain() if mechanism == PLAIN else self._scram(mechanism)

    async def _plain(self) -> AsyncGenerator[Step, bytes]:
        login = read_plain((yield Step(b"")))
        check_plain(login, self._passwords())
        yield Step(b"", login.username)

    async def _bearer(self) -> AsyncGenerator[Step, bytes]:
        from .bearer_tokens import TokenRefusedError

        assert self._tokens is not None, "the mechanism is offered"
        first = read_bearer((yield Step(b"")))
        try:
            bearer = await self._tokens.check(first.token)
        except TokenRefusedError as refused:
            logger.debug("listener %s refuses a token: %s", self._listener, refused)
            yield Step(BEARER_REFUSED)
            raise failed(BEARER_REFUSED.decode()) from refused
        if first.authorization_id not in ("", bearer.name):
            raise failed("Authentication failed: Client requested an authorization id that is not the token's")
        yield Step(b"", bearer.name, max(1, bearer.expires_ms - self._known.ports.now_ms()))

    async def _ticket(self) -> AsyncGenerator[Step, bytes]:
        assert self._kerberos is not None, "the mechanism is offered"
        acceptance = self._kerberos.accept()
        message = yield Step(b"")
        while True:
            message = yield Step(*await acceptance.go_on(message))

    async def _scram(self, mechanism: str) -> AsyncGenerator[Step, bytes]:
        first = read_scram_first((yield Step(b"")))
        name, is_by_token = first.username, first.extensions.get("tokenauth") == "true"
        secured = await self._known.tokens.secured(name, mechanism) if is_by_token else None
        if secured is not None:
            name, credential = secured.token.owner.partition(":")[2], secured.credential
        elif is_by_token:
            credential = stand_in(mechanism, name, self._secret)
        else:
            credential = await self._credential(name, mechanism)
        exchange = scram(mechanism, first, credential, self._token_bytes(NONCE_BYTES).hex())
        proof = yield Step(next(exchange))
        try:
            exchange.send(proof)
        except StopIteration as end:
            lifetime_ms = secured.token.expiry_ms - self._known.ports.now_ms() if secured is not None else None
            yield Step(end.value, name, lifetime_ms, is_by_token)

    async def _credential(self, username: str, mechanism: str) -> ScramCredential:
        try:
            known = await self._known.scram.credential(username, mechanism)
        except (StoreError, ValueError) as error:
            logger.error("the credential of %s cannot be read: %r", username, error)
            raise failed("Authentication failed: the credential cannot be read") from error
        return known or stand_in(mechanism, username, self._secret)

    def _passwords(self) -> dict[str, str]:
        text = self._config.free_value(self._jaas_key(PLAIN)) or ""
        options = jaas_options(text)
        return {name.removeprefix(_USER): word for name, word in options.items() if name.startswith(_USER)}

    def _jaas_key(self, mechanism: str) -> str:
        return f"listener.name.{self._listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
