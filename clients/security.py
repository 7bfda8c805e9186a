"""Who both ends of a connection are: `security.*`, `ssl.*` and `sasl.*` settings of the Java client, read for Python.

Certificates are PEM files, PEM text or PKCS12 stores (`key_stores.py`). SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512,
OAUTHBEARER with a token that `bearer_tokens.py` gets, and GSSAPI with a ticket that `kerberos.py` gets.
"""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.jaas import jaas_options
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


@dataclass(frozen=True)
class Security:
    """How a connection proves who both ends are."""

    tls: ssl.SSLContext | None = None
    mechanism: str | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    token: TokenSource | None = field(default=None, repr=False)
    """Asked for each authentication by OAUTHBEARER; it may block, and any thread may call it."""

    kerberos: KerberosLogin | None = None

    @property
    def blocks(self) -> bool:
        """Whether `exchange` may ask somebody else, and wait."""
        return self.token is not None or self.kerberos is not None

    def exchange(self, host: str) -> SaslExchange | None:
        """One authentication, for one connection to a broker there; None where nobody asks for one.

        Raises ValueError, and KafkaError where there is no token or ticket to be had.
        """
        if self.mechanism is None:
            return None
        if self.kerberos is not None:
            return self.kerberos.exchange(host)
        if self.mechanism == OAUTHBEARER:
            if self.token is None:
                raise ValueError(f"{OAUTHBEARER} needs a source of tokens")
            return bearer_exchange(self._token(self.token))
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        return sasl_exchange(self.mechanism, self.username, self.password, nonce)

    @staticmethod
    def _token(source: TokenSource) -> str:
        try:
            return source()
        except KafkaError:
            raise
        except Exception as error:  # a callback of the program's own
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"no token is to be had: {error!r}") from error


PLAINTEXT = Security()


def security_of(settings: Mapping[str, str]) -> Security:
    """Read the settings of a Kafka client by their dotted names. Raises ValueError, OSError."""
    name = settings.get("security.protocol", "PLAINTEXT").upper()
    if name not in _PROTOCOLS:
        raise ValueError(f"security.protocol: {name!r} is none of {', '.join(_PROTOCOLS)}")
    with_tls, with_sasl = _PROTOCOLS[name]
    tls = _tls(settings) if with_tls else None
    if not with_sasl:
        return Security(tls)
    mechanism = settings.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in MECHANISMS:
        raise ValueError(f"sasl.mechanism: {mechanism} is none of {', '.join(MECHANISMS)}")
    if mechanism == OAUTHBEARER:
        return Security(tls, mechanism, token=token_source(settings))
    if mechanism == GSSAPI:
        return Security(tls, mechanism, kerberos=_kerberos(settings))
    username, password = _credentials(settings)
    return Security(tls, mechanism, username, password)


def _kerberos(settings: Mapping[str, str]) -> KerberosLogin:
    try:
        from .kerberos import KerberosLogin
    except ImportError:
        raise ValueError("sasl.mechanism: for GSSAPI pip install 'barnabas[gssapi]'") from None
    return KerberosLogin.of(settings, secrets.token_hex(8))


def _credentials(settings: Mapping[str, str]) -> tuple[str, str]:
    """User and password out of `sasl.jaas.config`, as Java has it, or out of librdkafka's two settings."""
    fields = jaas_options(settings.get("sasl.jaas.config", ""))
    username = fields.get("username") or settings.get("sasl.username")
    password = fields.get("password") or settings.get("sasl.password")
    if not username or password is None:
        raise ValueError("sasl.jaas.config has no username and password")
    return username, password


def _tls(settings: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if settings.get("ssl.truststore.certificates") or settings.get("ssl.truststore.location"):
        # Nobody else is trusted then.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        load_trust(context, settings)
    # Kafka turns the check of host names off with an empty algorithm.
    context.check_hostname = settings.get("ssl.endpoint.identification.algorithm", "https") != ""
    load_key(context, settings)
    return context
