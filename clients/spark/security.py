"""`kafka.security.*`, `kafka.ssl.*` and `kafka.sasl.*` settings of the Java client, read for a Python socket.

Certificates are PEM: `ssl.truststore.location` and `ssl.keystore.location` name PEM files (`ssl.truststore.type=PEM`),
or `ssl.truststore.certificates`, `ssl.keystore.certificate.chain` and `ssl.keystore.key` hold them as text (KIP-651).
A Java keystore cannot be read here and is refused with that advice. SASL: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import ssl
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...protocol.errors import ErrorCode, KafkaError
from . import host

_PROTOCOLS = {
    "PLAINTEXT": (False, False),
    "SSL": (True, False),
    "SASL_PLAINTEXT": (False, True),
    "SASL_SSL": (True, True),
}
_SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MIN_ITERATIONS = 4096
_JAAS = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')


@dataclass(frozen=True)
class Security:
    """How a connection proves who both ends are."""

    tls: ssl.SSLContext | None = None
    mechanism: str | None = None
    username: str = ""
    password: str = ""


def security_of(settings: Mapping[str, str]) -> Security:
    """Read the settings of a Kafka client (without the `kafka.` prefix). Raises ValueError, OSError."""
    name = settings.get("security.protocol", "PLAINTEXT").upper()
    if name not in _PROTOCOLS:
        raise ValueError(f"kafka.security.protocol: {name!r} is none of {', '.join(_PROTOCOLS)}")
    with_tls, with_sasl = _PROTOCOLS[name]
    tls = _tls(settings) if with_tls else None
    if not with_sasl:
        return Security(tls)
    mechanism = settings.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism != "PLAIN" and mechanism not in _SCRAM:
        raise ValueError(f"kafka.sasl.mechanism: {mechanism} is none of PLAIN, {', '.join(_SCRAM)}")
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
        raise ValueError("kafka.sasl.jaas.config has no username and password")
    return username, password


def _tls(settings: Mapping[str, str]) -> ssl.SSLContext:
    for role in ("truststore", "keystore"):
        kind = settings.get(f"ssl.{role}.type", "PEM" if f"ssl.{role}.location" not in settings else "JKS").upper()
        if kind != "PEM":
            raise ValueError(f"kafka.ssl.{role}.type={kind} cannot be read here; give PEM files and the type PEM")
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
        pem = host.private_folder("barnabas-tls-") / "client.pem"
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


def sasl_messages(security: Security) -> Generator[bytes, bytes, None]:
    """The client's messages of one authentication, in order; `send` each answer. Raises KafkaError."""
    if security.mechanism == "PLAIN":
        yield f"\0{security.username}\0{security.password}".encode()
        return
    yield from _scram(security, _SCRAM[security.mechanism or ""])


def _scram(security: Security, algorithm: str) -> Generator[bytes, bytes, None]:
    """RFC 5802 without channel binding."""
    user = security.username.replace("=", "=3D").replace(",", "=2C")
    nonce = secrets.token_urlsafe(24)
    first = f"n={user},r={nonce}"
    challenge = yield f"n,,{first}".encode()
    fields = _scram_fields(challenge)
    salt, iterations = base64.b64decode(fields.get("s", "")), int(fields.get("i", "0"))
    if not fields.get("r", "").startswith(nonce) or not salt or iterations < _MIN_ITERATIONS:
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "the broker's SCRAM challenge is not acceptable")
    salted = hashlib.pbkdf2_hmac(algorithm, security.password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    final = f"c=biws,r={fields['r']}"
    signed = f"{first},{challenge.decode()},{final}".encode()
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), signed, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    answer = yield f"{final},p={base64.b64encode(proof).decode()}".encode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), signed, algorithm)
    verifier = base64.b64decode(_scram_fields(answer).get("v", ""))
    if not hmac.compare_digest(verifier, expected):
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "the broker does not know the password either")


def _scram_fields(message: bytes) -> dict[str, str]:
    return dict(part.split("=", 1) for part in message.decode().split(",") if "=" in part)
