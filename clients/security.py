"""Who both ends of a connection are: `security.*`, `ssl.*` and `sasl.*` settings of the Java client, read for Python.

Certificates are PEM: `ssl.truststore.location` and `ssl.keystore.location` name PEM files (`ssl.truststore.type=PEM`),
or `ssl.truststore.certificates`, `ssl.keystore.certificate.chain` and `ssl.keystore.key` hold them as text (KIP-651).
A Java keystore cannot be read here and is refused with that advice. SASL: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.
"""

from __future__ import annotations

import re
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..protocol.sasl import MECHANISMS, SaslExchange, sasl_exchange
from .host import private_folder

_PROTOCOLS = {
    "PLAINTEXT": (False, False),
    "SSL": (True, False),
    "SASL_PLAINTEXT": (False, True),
    "SASL_SSL": (True, True),
}
_NONCE_BYTES = 24
_JAAS = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')


@dataclass(frozen=True)
class Security:
    """How a connection proves who both ends are."""

    tls: ssl.SSLContext | None = None
    mechanism: str | None = None
    username: str = ""
    password: str = field(default="", repr=False)

    def exchange(self) -> SaslExchange | None:
        """One authentication, for one connection; None where nobody asks for one. Raises ValueError."""
        if self.mechanism is None:
            return None
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        return sasl_exchange(self.mechanism, self.username, self.password, nonce)


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
    username, password = _credentials(settings)
    return Security(tls, mechanism, username, password)


def _credentials(settings: Mapping[str, str]) -> tuple[str, str]:
    """User and password out of `sasl.jaas.config`, as Java has it, or out of librdkafka's two settings."""
    fields = {
        name: re.sub(r"\\(.)", r"\1", quoted) or plain
        for name, quoted, plain in _JAAS.findall(settings.get("sasl.jaas.config", ""))
    }
    username = fields.get("username") or settings.get("sasl.username")
    password = fields.get("password") or settings.get("sasl.password")
    if not username or password is None:
        raise ValueError("sasl.jaas.config has no username and password")
    return username, password


def _tls(settings: Mapping[str, str]) -> ssl.SSLContext:
    for role in ("truststore", "keystore"):
        kind = settings.get(f"ssl.{role}.type", "PEM" if f"ssl.{role}.location" not in settings else "JKS").upper()
        if kind != "PEM":
            raise ValueError(f"ssl.{role}.type={kind} cannot be read here; give PEM files and the type PEM")
    context = ssl.create_default_context(
        cafile=settings.get("ssl.truststore.location"), cadata=settings.get("ssl.truststore.certificates")
    )
    # Kafka turns the check of host names off with an empty algorithm.
    context.check_hostname = settings.get("ssl.endpoint.identification.algorithm", "https") != ""
    password = settings.get("ssl.key.password")
    if "ssl.keystore.location" in settings:
        context.load_cert_chain(settings["ssl.keystore.location"], password=password)
    elif "ssl.keystore.certificate.chain" in settings:
        # The standard library reads certificates from files only.
        pem = private_folder("barnabas-tls-") / "client.pem"
        _write_private(pem, settings.get("ssl.keystore.key", "") + "\n" + settings["ssl.keystore.certificate.chain"])
        try:
            context.load_cert_chain(str(pem), password=password)
        finally:
            pem.unlink()
            pem.parent.rmdir()
    return context


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
