"""TLS of one listener: keys, whom it trusts, which protocols it speaks, and who a certificate's owner is.

A new key or trust store is put in the place of the old one for connections that come from then on.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from ...clients.key_stores import load_key, load_trust
from ...protocol.in_words import in_words
from ...protocol.room_logger import room_logger
from ..config.keys.validators import ConfigError
from .principal_rules import PrincipalRules, distinguished_name
from .session import ANONYMOUS, KafkaPrincipal

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
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class TlsListener:
    """Of one listener. `build` may be called on any thread, the rest on the loop's."""

    def __init__(self, config: BrokerConfig, listener: str, now_ms: Callable[[], int]) -> None:
        """Raises ConfigError if the listener cannot be served so."""
        self._config = config
        self._listener = listener
        self._now_ms = now_ms
        self._rules = PrincipalRules(str(self._value("ssl.principal.mapping.rules") or "DEFAULT"))
        self.context = self.build()
        """For the next connection."""

    def build(self) -> ssl.SSLContext:
        """A context by the settings and files as they are now. Raises ConfigError."""
        settings = {key: str(value) for key in STORE_KEYS if (value := self._value(key))}
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        # One ticket does to resume a session; the connection that does so gets the next.
        context.num_tickets = 1
        choose_protocols(context, self._config, self._listener)
        wanted = str(self._value("ssl.client.auth"))
        try:
            if not load_key(context, settings):
                raise ConfigError("ssl.keystore.location", None, f"listener {self._listener} has no key")
            trusts = load_trust(context, settings)
        except (OSError, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            reason = f"listener {self._listener}: {in_words(error)}"
            raise ConfigError("ssl.keystore.location", settings.get("ssl.keystore.location"), reason) from error
        if wanted != "none" and not trusts:
            reason = f"listener {self._listener} asks for certificates and trusts nobody: give ssl.truststore.location"
            raise ConfigError("ssl.client.auth", wanted, reason)
        context.verify_mode = _CLIENT_AUTH[wanted]
        return context

    def take(self, built: ssl.SSLContext) -> None:
        """Show and trust this from the next connection on."""
        self.context = built

    def principal(self, certificate: Mapping[str, Any] | None) -> KafkaPrincipal | None:
        """Who the owner of a verified certificate is, as Python's ssl module describes it; ANONYMOUS without one.

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


def choose_protocols(context: ssl.SSLContext, config: BrokerConfig, listener: str) -> None:
    """Have a context speak what `ssl.enabled.protocols` and `ssl.cipher.suites` name. Raises ConfigError."""
    key = "ssl.enabled.protocols"
    names = cast("tuple[str, ...]", config.listener_value(listener, key))
    versions = sorted(_VERSIONS[name] for name in names if name in _VERSIONS)
    if not versions:
        raise ConfigError(key, ",".join(names), f"none of them is one of {', '.join(_VERSIONS)}")
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    suites = cast("tuple[str, ...]", config.listener_value(listener, "ssl.cipher.suites"))
    older = [_openssl_name(name) for name in suites if "_WITH_" in name]
    if older:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError as error:
            raise ConfigError("ssl.cipher.suites", ",".join(suites), "OpenSSL knows none of them") from error


def _openssl_name(suite: str) -> str:
    """OpenSSL's name of a cipher suite of TLS 1.2; those of 1.3 are not for choice."""
    name = suite.removeprefix("TLS_").replace("_WITH_", "_").removeprefix("RSA_").replace("_CBC", "")
    name = name.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("POLY1305_SHA256", "POLY1305")
    return name.replace("_", "-")
