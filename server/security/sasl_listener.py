"""The SASL mechanisms of a listener, their credentials, and the lifetime of sessions.

Settings are read for each authentication, so that a changed password applies to the next one.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, cast

from ...common.jaas import jaas_options
from ...common.room_logger import room_logger
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
from ..runtime.log_limit import LimitedLog

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from ..config.broker_config import BrokerConfig
    from ..metadata.scram_store import ScramStore
    from ..runtime.ports import Ports
    from .access_token_validator import AccessTokenValidator
    from .delegation_token_manager import DelegationTokenManager
    from .kerberos import KerberosAcceptor

logger = room_logger("security")

PLAIN = "PLAIN"
UNSUPPORTED = "unsupported"
"""The label in metrics for all mechanisms that a listener does not offer, because clients can send any name."""
NONCE_BYTES = 24
_USER = "user_"


class SaslResponse(NamedTuple):
    """The broker's message to a client during an authentication, and its result."""

    challenge: bytes
    username: str | None = None
    """The authenticated user; None before the last message."""
    lifetime_ms: int | None = None
    """The remaining lifetime of the client's token or ticket; None without one."""
    is_by_token: bool = False
    """Whether the client authenticated with a delegation token."""


class CredentialSources(NamedTuple):
    """The stores of credentials that are not in the configuration, and the ports that check them."""

    scram: ScramStore
    tokens: DelegationTokenManager
    ports: Ports
    now: Callable[[], float]
    """The loop's time."""


class SaslListener:
    """The SASL configuration of one listener, used on the loop's thread only."""

    def __init__(self, config: BrokerConfig, listener: str, sources: CredentialSources) -> None:
        """Read the settings. Raises ConfigError for a mechanism that the broker cannot serve."""
        self._config = config
        self._listener = listener
        self._sources = sources
        self.failures: Counter[str] = Counter()
        """Failed authentications by mechanism; `UNSUPPORTED` for mechanisms that the listener does not offer."""
        self.failure_log = LimitedLog(logger, sources.now)
        self._secret = sources.ports.token_bytes(32)
        self._tokens: AccessTokenValidator | None = None
        self._kerberos: KerberosAcceptor | None = None
        key = "sasl.enabled.mechanisms"
        for mechanism in self.mechanisms:
            if mechanism not in MECHANISMS:
                reason = f"listener {listener}: SASL mechanism {mechanism}: expected one of {', '.join(MECHANISMS)}"
                raise ConfigError(key, ",".join(self.mechanisms), reason)
        if not self.mechanisms:
            raise ConfigError(key, "", f"listener {listener} uses SASL and has no mechanism")
        if PLAIN in self.mechanisms and not self._passwords():
            reason = 'mechanism PLAIN is enabled and no user_NAME="password" is given'
            raise ConfigError(self._jaas_key(PLAIN), None, reason)
        self.prepare_mechanisms()

    def prepare_mechanisms(self) -> None:
        """Build the validators of mechanisms that were enabled since the last call. Raises ConfigError."""
        if OAUTHBEARER in self.mechanisms and self._tokens is None:
            self._tokens = self._create_validator()
        if GSSAPI in self.mechanisms and self._kerberos is None:
            self._kerberos = self._create_acceptor()

    def _create_validator(self) -> AccessTokenValidator:
        try:
            from .access_token_validator import AccessTokenValidator
        except ImportError:
            reason = f"listener {self._listener}: for {OAUTHBEARER} pip install 'barnabas[oauth]'"
            raise ConfigError("sasl.enabled.mechanisms", ",".join(self.mechanisms), reason) from None
        ports = self._sources.ports
        return AccessTokenValidator(self._config, self._listener, ports.work, self._sources.now, ports.now_ms)

    def _create_acceptor(self) -> KerberosAcceptor:
        try:
            from .kerberos import KerberosAcceptor
        except ImportError:
            reason = f"listener {self._listener}: for {GSSAPI} pip install 'barnabas[gssapi]'"
            raise ConfigError("sasl.enabled.mechanisms", ",".join(self.mechanisms), reason) from None
        return KerberosAcceptor(self._config, self._listener, self._sources.ports.work, self._sources.now)

    def count_failure(self, mechanism: str) -> None:
        """Count a failed authentication."""
        self.failures[mechanism] += 1

    async def close(self) -> None:
        """Stop refreshing keys."""
        if self._tokens is not None:
            await self._tokens.close()

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The enabled mechanisms, in upper case."""
        names = cast("tuple[str, ...]", self._config.listener_value(self._listener, "sasl.enabled.mechanisms"))
        return tuple(name.strip().upper() for name in names if name.strip())

    @property
    def max_session_ms(self) -> int:
        """The lifetime of a session in ms, after which a client authenticates again; 0: no limit (KIP-368)."""
        return cast(int, self._config.listener_value(self._listener, "connections.max.reauth.ms"))

    @property
    def failure_delay(self) -> float:
        """Seconds before a client gets the response to a failed authentication."""
        return self._config.connection_failed_authentication_delay_ms / 1000

    def exchange(self, mechanism: str) -> AsyncGenerator[SaslResponse, bytes]:
        """Return a new exchange: `asend(None)`, then each message of the client. It raises KafkaError for a failure."""
        if mechanism == OAUTHBEARER:
            return self._oauthbearer()
        if mechanism == GSSAPI:
            return self._gssapi()
        return self._plain() if mechanism == PLAIN else self._scram(mechanism)

    async def _plain(self) -> AsyncGenerator[SaslResponse, bytes]:
        login = read_plain((yield SaslResponse(b"")))
        check_plain(login, self._passwords())
        yield SaslResponse(b"", login.username)

    async def _oauthbearer(self) -> AsyncGenerator[SaslResponse, bytes]:
        from .access_token_validator import AccessTokenRejectedError

        assert self._tokens is not None, "an enabled mechanism"
        first = read_bearer((yield SaslResponse(b"")))
        try:
            token = await self._tokens.validate(first.token)
        except AccessTokenRejectedError as error:
            logger.debug("listener %s rejects a token: %s", self._listener, error)
            yield SaslResponse(BEARER_REFUSED)
            raise failed(BEARER_REFUSED.decode()) from error
        if first.authorization_id not in ("", token.principal_name):
            raise failed("Authentication failed: Client requested an authorization id that is not the token's")
        yield SaslResponse(b"", token.principal_name, max(1, token.lifetime_ms - self._sources.ports.now_ms()))

    async def _gssapi(self) -> AsyncGenerator[SaslResponse, bytes]:
        assert self._kerberos is not None, "an enabled mechanism"
        exchange = self._kerberos.begin_exchange()
        message = yield SaslResponse(b"")
        while True:
            message = yield SaslResponse(*await exchange.evaluate_response(message))

    async def _scram(self, mechanism: str) -> AsyncGenerator[SaslResponse, bytes]:
        first = read_scram_first((yield SaslResponse(b"")))
        name, is_by_token = first.username, first.extensions.get("tokenauth") == "true"
        found = await self._sources.tokens.find_credential(name, mechanism) if is_by_token else None
        if found is not None:
            name, credential = found.token.owner.partition(":")[2], found.credential
        elif is_by_token:
            credential = stand_in(mechanism, name, self._secret)
        else:
            credential = await self._credential(name, mechanism)
        exchange = scram(mechanism, first, credential, self._sources.ports.token_bytes(NONCE_BYTES).hex())
        proof = yield SaslResponse(next(exchange))
        try:
            exchange.send(proof)
        except StopIteration as end:
            lifetime_ms = found.token.expiry_ms - self._sources.ports.now_ms() if found is not None else None
            yield SaslResponse(end.value, name, lifetime_ms, is_by_token)

    async def _credential(self, username: str, mechanism: str) -> ScramCredential:
        try:
            known = await self._sources.scram.credential(username, mechanism)
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
