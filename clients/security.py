"""Authentication of both ends of a connection: `security.*`, `ssl.*` and `sasl.*` settings of the Java client.

Certificates are PEM files, PEM text or PKCS12 stores (`key_stores.py`). SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512,
OAUTHBEARER with a token of `bearer_tokens.py`, and GSSAPI with a ticket of `kerberos.py`.
"""

from __future__ import annotations

import re
import secrets
import ssl
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..common.jaas import jaas_options
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.sasl import GSSAPI, MECHANISMS, OAUTHBEARER, SaslExchange, bearer_exchange, sasl_exchange
from .bearer_tokens import TokenSource, token_source
from .key_stores import load_key, load_trust

if TYPE_CHECKING:
    from .kerberos import KerberosLogin

_PROTOCOLS = {
    "PLAINTEXT": (False, False),
    "SSL": (True, False),
    "SASL_PLAINTEXT": (False, True),
    "SASL_SSL": (True, True),
}
_NONCE_BYTES = 24
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_SUITE = re.compile(r"[A-Za-z0-9_-]+")
_NO_SUITE = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"
"""Java lists this signal among the cipher suites; OpenSSL always sends it."""


@dataclass(frozen=True)
class Security:
    """The security settings of a connection."""

    tls: ssl.SSLContext | None = None
    mechanism: str | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    token: TokenSource | None = field(default=None, repr=False)
    """Source of the token, called for each authentication with OAUTHBEARER, on any thread; it may block."""

    kerberos: KerberosLogin | None = None
    default_mechanism_error: str | None = None
    """Why this client cannot use GSSAPI, Kafka's default without `sasl.mechanism`. It is the error if a broker accepts
    GSSAPI; other brokers return the mechanisms that they offer, which is the better error."""

    def describe_denial(self, operation: str, resource: str) -> str:
        """Return the text of an authorization error: the broker's response contains neither principal nor operation."""
        who = f"User:{self.username}" if self.username else "this client"
        return f"{who} has no ACL for {operation} on {resource}"

    @property
    def blocks(self) -> bool:
        """Return whether `exchange` may call another server, and block."""
        return self.token is not None or self.kerberos is not None

    def exchange(self, host: str) -> SaslExchange | None:
        """Start one authentication for a connection to this broker; None if no authentication is configured.

        Raises ValueError, and KafkaError without a token or ticket.
        """
        if self.mechanism is None:
            return None
        if self.default_mechanism_error is not None:
            return SaslExchange(GSSAPI, _failing(self.default_mechanism_error))
        if self.kerberos is not None:
            return self.kerberos.exchange(host)
        if self.mechanism == OAUTHBEARER:
            if self.token is None:
                raise ValueError(f"{OAUTHBEARER} requires a source of tokens")
            return bearer_exchange(self._token(self.token))
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        return sasl_exchange(self.mechanism, self.username, self.password, nonce)

    @staticmethod
    def _token(source: TokenSource) -> str:
        try:
            return source()
        except KafkaError:
            raise
        except Exception as error:  # a callback of the application
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"cannot get a token: {error!r}") from error


def _failing(reason: str) -> Generator[bytes, bytes, None]:
    """Raise instead of the first message of an authentication."""
    raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, reason)
    yield b""  # a generator


PLAINTEXT = Security()


def security_of(settings: Mapping[str, str]) -> Security:
    """Read the settings of a Kafka client by their dotted names. Raises ValueError, OSError."""
    name = settings.get("security.protocol", "PLAINTEXT").upper()
    if name not in _PROTOCOLS:
        raise ValueError(f"security.protocol: invalid value {name!r}. Expected one of {', '.join(_PROTOCOLS)}")
    with_tls, with_sasl = _PROTOCOLS[name]
    tls = _tls(settings) if with_tls else None
    if not with_sasl:
        return Security(tls)
    mechanism = settings.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in MECHANISMS:
        raise ValueError(f"sasl.mechanism: invalid value {mechanism}. Expected one of {', '.join(MECHANISMS)}")
    if mechanism == OAUTHBEARER:
        return Security(tls, mechanism, token=token_source(settings))
    if mechanism == GSSAPI:
        try:
            return Security(tls, mechanism, kerberos=_kerberos(settings))
        except (OSError, ValueError) as error:
            if "sasl.mechanism" in settings:
                raise
            reason = f"sasl.mechanism is not set, and the default GSSAPI cannot be used: {error}"
            return Security(tls, mechanism, default_mechanism_error=reason)
    username, password = _credentials(settings)
    return Security(tls, mechanism, username, password)


def _kerberos(settings: Mapping[str, str]) -> KerberosLogin:
    try:
        from .kerberos import KerberosLogin
    except ImportError:
        raise ValueError("sasl.mechanism: GSSAPI requires pip install 'barnabas[gssapi]'") from None
    return KerberosLogin.of(settings, secrets.token_hex(8))


def _credentials(settings: Mapping[str, str]) -> tuple[str, str]:
    """Return user and password of Java's `sasl.jaas.config`, or of librdkafka's two settings."""
    fields = jaas_options(settings.get("sasl.jaas.config", ""))
    username = fields.get("username") or settings.get("sasl.username")
    password = fields.get("password") or settings.get("sasl.password")
    if not username or password is None:
        raise ValueError("sasl.jaas.config has no username and password")
    return username, password


def _tls(settings: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if settings.get("ssl.truststore.certificates") or settings.get("ssl.truststore.location"):
        # Then no other authority is trusted.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        load_trust(context, settings)
    # In Kafka an empty algorithm disables the check of host names.
    context.check_hostname = settings.get("ssl.endpoint.identification.algorithm", "https") != ""
    load_key(context, settings)
    for key, choose in (("ssl.enabled.protocols", choose_protocols), ("ssl.cipher.suites", choose_suites)):
        if names := [name.strip() for name in settings.get(key, "").split(",") if name.strip()]:
            try:
                choose(context, names)
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from error
    return context


def choose_protocols(context: ssl.SSLContext, names: Sequence[str]) -> None:
    """Restrict a context to these protocols (`ssl.enabled.protocols`). Raises ValueError."""
    versions = sorted(_VERSIONS[name] for name in names if name in _VERSIONS)
    if not versions:
        raise ValueError(f"expected at least one of {', '.join(_VERSIONS)}")
    context.minimum_version, context.maximum_version = versions[0], versions[-1]


def choose_suites(context: ssl.SSLContext, names: Sequence[str]) -> None:
    """Restrict a context to these cipher suites, by Java's names (`ssl.cipher.suites`).

    A protocol without a suite among them is not negotiated. Call it after `choose_protocols`. Raises ValueError for a
    suite that OpenSSL does not support, and if Python cannot restrict a context to these suites.
    """
    newer_supported = {one["name"] for one in context.get_ciphers() if one["protocol"] == "TLSv1.3"}
    wanted = [name for name in names if name != _NO_SUITE]
    newer = {name for name in wanted if name in newer_supported}
    older = {_openssl_name(name): name for name in wanted if name not in newer}
    # OpenSSL's lists have their own syntax (`ALL:@SECLEVEL=0`), so only names are passed to it.
    unsupported = [name for name in older.values() if not _SUITE.fullmatch(name)]
    if older and not unsupported:
        try:
            context.set_ciphers(":".join(older))
            chosen = {one["name"] for one in context.get_ciphers() if one["protocol"] != "TLSv1.3"}
        except ssl.SSLError:
            chosen = set()
        if chosen - older.keys():
            raise ValueError(f"expected names of cipher suites, found {', '.join(older.values())}")
        unsupported = [name for openssl_name, name in older.items() if openssl_name not in chosen]
    if unsupported:
        raise ValueError(f"not supported by {ssl.OPENSSL_VERSION}: {', '.join(unsupported)}")
    if not older:
        _raise_minimum(context, newer)
    elif not newer:
        if context.minimum_version == ssl.TLSVersion.TLSv1_3:
            raise ValueError("only TLSv1.3 is enabled, and none of these suites belongs to it")
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if newer and newer != newer_supported:
        _choose_newer_suites(context, newer, newer_supported)


def _raise_minimum(context: ssl.SSLContext, newer: set[str]) -> None:
    if not newer:
        raise ValueError("the list of cipher suites is empty")
    if context.maximum_version == ssl.TLSVersion.TLSv1_2:
        raise ValueError("these suites belong to TLSv1.3, which is not enabled")
    context.minimum_version = ssl.TLSVersion.TLSv1_3


def _choose_newer_suites(context: ssl.SSLContext, newer: set[str], supported: set[str]) -> None:
    """Restrict a context to some suites of TLS 1.3, which Python can do from 3.15 on."""
    choose = getattr(context, "set_ciphersuites", None)
    if choose is None:
        reason = "this version of Python cannot restrict TLSv1.3 to some of its suites; name all of"
        advice = "or none, with ssl.enabled.protocols=TLSv1.2"
        raise ValueError(f"{reason} {', '.join(sorted(supported))}, {advice}")
    choose(":".join(sorted(newer)))


def _openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a cipher suite of TLS 1.2."""
    name = suite.removeprefix("TLS_").replace("_WITH_", "_").removeprefix("RSA_").replace("_CBC", "")
    name = name.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("POLY1305_SHA256", "POLY1305")
    return name.replace("_", "-")
