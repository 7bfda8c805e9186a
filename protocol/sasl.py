"""The client's messages of an authentication.

PLAIN (RFC 4616), SCRAM without channel binding (RFC 5802), OAUTHBEARER (RFC 7628).

Their transport (SaslAuthenticate requests, or bare frames after SaslHandshake 0) belongs to the connection.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Generator
from dataclasses import dataclass

from .errors import ErrorCode, KafkaError

SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
OAUTHBEARER, GSSAPI = "OAUTHBEARER", "GSSAPI"
MECHANISMS = ("PLAIN", *SCRAM_HASHES, OAUTHBEARER, GSSAPI)
_MIN_ITERATIONS = 4096
_MAX_ITERATIONS = 1 << 20
"""Maximum iterations: an unauthenticated broker could otherwise occupy the client's processor."""


@dataclass(frozen=True, slots=True)
class SaslExchange:
    """One authentication; used once."""

    mechanism: str
    messages: Generator[bytes, bytes, None]
    """Yield the client's messages in order; `send` each response. Raises KafkaError (SASL_AUTHENTICATION_FAILED)."""


def bearer_exchange(token: str) -> SaslExchange:
    """Start an exchange with OAUTHBEARER."""
    return SaslExchange(OAUTHBEARER, _bearer(token))


def sasl_exchange(mechanism: str, username: str, password: str, nonce: str) -> SaslExchange:
    """Start an exchange with a password. Raises ValueError.

    `nonce` is a secret of this exchange: random, printable, without a comma.
    """
    if mechanism == "PLAIN":
        return SaslExchange(mechanism, _plain(username, password))
    if mechanism not in SCRAM_HASHES:
        expected = ", ".join(("PLAIN", *SCRAM_HASHES))
        raise ValueError(f"SASL mechanism: invalid value {mechanism!r} for a password. Expected one of {expected}")
    return SaslExchange(mechanism, _checked(_scram(SCRAM_HASHES[mechanism], username, password, nonce)))


def _plain(username: str, password: str) -> Generator[bytes, bytes, None]:
    yield f"\0{username}\0{password}".encode()


def _bearer(token: str) -> Generator[bytes, bytes, None]:
    refusal = yield f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    if refusal:
        # The error must be acknowledged (RFC 7628, section 3.2.3); then the broker ends the authentication.
        yield b"\x01"
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"the broker rejects the token: {refusal[:200]!r}")


def _checked(messages: Generator[bytes, bytes, None]) -> Generator[bytes, bytes, None]:
    """Treat an unreadable response as a failed authentication, like a wrong one."""
    try:
        yield from messages
    except ValueError as error:
        raise KafkaError(
            ErrorCode.SASL_AUTHENTICATION_FAILED, f"the broker's response is not SCRAM: {error}"
        ) from error


def _scram(algorithm: str, username: str, password: str, nonce: str) -> Generator[bytes, bytes, None]:
    user = username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={user},r={nonce}"
    challenge = yield f"n,,{first}".encode()
    fields = _fields(challenge)
    salt, iterations = base64.b64decode(fields.get("s", "")), int(fields.get("i", "0"))
    is_ours = fields.get("r", "").startswith(nonce)
    if not is_ours or not salt or not _MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "the broker's SCRAM challenge is not acceptable")
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    final = f"c=biws,r={fields['r']}"
    signed = f"{first},{challenge.decode()},{final}".encode()
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), signed, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    answer = yield f"{final},p={base64.b64encode(proof).decode()}".encode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), signed, algorithm)
    verifier = base64.b64decode(_fields(answer).get("v", ""))
    if not hmac.compare_digest(verifier, expected):
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "the broker has not proved that it has the password")


def _fields(message: bytes) -> dict[str, str]:
    return dict(part.split("=", 1) for part in message.decode().split(",") if "=" in part)
