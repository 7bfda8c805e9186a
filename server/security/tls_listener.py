"""TLS of one listener: its key, trust store and protocols, and the principals of client certificates.

A new key or trust store replaces the old one for subsequent connections.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ...clients.key_stores import expiry_time, load_key, load_trust, own_certificate
from ...clients.security import choose_protocols, choose_suites
from ...common.error_description import describe_error
from ...common.room_logger import room_logger
from ..config.keys.validators import ConfigError
from .session import ANONYMOUS, KafkaPrincipal
from .ssl_principal_mapper import SslPrincipalMapper, distinguished_name

if TYPE_CHECKING:
    from ..config.broker_config import BrokerConfig

logger = room_logger("security")

STORE_KEYS = tuple(
    f"ssl.{name}"
    for name in (
        "key.password", "keystore.certificate.chain", "keystore.key", "keystore.location", "keystore.password",
        "keystore.type", "truststore.certificates", "truststore.location", "truststore.password", "truststore.type",
    )
)  # fmt: skip
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class TlsKey(NamedTuple):
    """The key store and trust store of a listener, loaded."""

    context: ssl.SSLContext
    """The context of the next connection."""
    expires_at: float
    """The time at which the certificate of the key expires, in seconds since 1970; infinity if it is not known."""


class TlsListener:
    """The TLS of one listener. `build` may be called on any thread, all other methods on the loop's."""

    def __init__(self, config: BrokerConfig, listener: str, now_ms: Callable[[], int]) -> None:
        """Raises ConfigError for settings that the listener cannot use."""
        self._config = config
        self._listener = listener
        self._now_ms = now_ms
        self._rules = SslPrincipalMapper(str(self._value("ssl.principal.mapping.rules") or "DEFAULT"))
        self.failures = 0
        """Failed handshakes, and clients whose certificates have no principal."""
        self.take(self.build())

    def count_failure(self) -> None:
        """Count a failed handshake, or a client whose certificate has no principal."""
        self.failures += 1

    @property
    def seconds_until_expiry(self) -> float:
        """The seconds until the certificate of the listener expires; negative after that."""
        return self.expires_at - self._now_ms() / 1000

    def build(self) -> TlsKey:
        """Load the key store and the trust store of the current settings. Blocks. Raises ConfigError."""
        settings = _store_settings(self._config, self._listener)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        # One ticket does to resume a session; the connection that does so gets the next.
        context.num_tickets = 1
        restrict_tls(context, self._config, self._listener)
        wanted = str(self._value("ssl.client.auth"))
        try:
            if not load_key(context, settings):
                raise ConfigError(
                    "ssl.keystore.location", None, f"listener {self._listener}: no private key in the key store"
                )
            trusts = load_trust(context, settings)
            expires_at = expiry_time(own_certificate(settings))
        except (OSError, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            reason = f"listener {self._listener}: {describe_error(error)}"
            raise ConfigError("ssl.keystore.location", settings.get("ssl.keystore.location"), reason) from error
        if wanted != "none" and not trusts:
            reason = f"listener {self._listener} checks certificates without a trust store: set ssl.truststore.location"
            raise ConfigError("ssl.client.auth", wanted, reason)
        context.verify_mode = _CLIENT_AUTH[wanted]
        return TlsKey(context, expires_at)

    def take(self, built: TlsKey) -> None:
        """Use this key for subsequent connections."""
        self.context, self.expires_at = built

    def principal(self, certificate: Mapping[str, Any] | None) -> KafkaPrincipal | None:
        """Return the principal of a verified certificate in the form of Python's ssl module; ANONYMOUS without one.

        None if no rule gives the owner a name, or the certificate has expired: OpenSSL looks when it is shown, and not
        when a session is resumed, over and over.
        """
        if not certificate:
            return ANONYMOUS
        if ssl.cert_time_to_seconds(certificate["notAfter"]) * 1000 < self._now_ms():
            return None
        name = self._rules.name_of(distinguished_name(certificate["subject"]))
        return KafkaPrincipal("User", name) if name is not None else None

    def _value(self, key: str) -> object:
        return self._config.listener_value(self._listener, key)


def tls_client(
    config: BrokerConfig, listener: str, trusted: Sequence[bytes] = (), *, or_default: bool = False
) -> ssl.SSLContext | None:
    """Return a context that connects to the listener as another broker would, without a check of the host's name.

    It trusts the certificates in `trusted`, or else the listener's trust store, or else with `or_default` the
    machine's trusted certificates; None if there are none. Raises OSError, ValueError.
    """
    settings = _store_settings(config, listener)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if trusted:
        context.load_verify_locations(cadata=b"".join(trusted))
    elif not load_trust(context, settings):
        if not or_default:
            return None
        context.load_default_certs()
    load_key(context, settings)
    return context


def handshake_failure(client: ssl.SSLContext, server: ssl.SSLContext) -> str | None:
    """Return why two contexts cannot connect, None if they can (Kafka: SslFactory.SslEngineValidator)."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    waiting = ends
    # A handshake takes three flights at most; each round lets both ends take one.
    for _ in range(5):
        for end in waiting:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return describe_error(error)
            waiting = [other for other in waiting if other is not end]
    return "the handshake does not end" if waiting else None


def _store_settings(config: BrokerConfig, listener: str) -> dict[str, str]:
    return {key: str(value) for key in STORE_KEYS if (value := config.listener_value(listener, key))}


def restrict_tls(context: ssl.SSLContext, config: BrokerConfig, listener: str) -> None:
    """Restrict a context to `ssl.enabled.protocols` and `ssl.cipher.suites` of a listener. Raises ConfigError."""
    for key, choose in (("ssl.enabled.protocols", choose_protocols), ("ssl.cipher.suites", choose_suites)):
        names = cast("tuple[str, ...]", config.listener_value(listener, key))
        if not names and key == "ssl.cipher.suites":
            continue
        try:
            choose(context, names)
        except ValueError as error:
            raise ConfigError(key, ",".join(names), f"listener {listener}: {error}") from error
