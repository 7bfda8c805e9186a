"""The broker's messages of an authentication.

PLAIN (RFC 4616), SCRAM without channel binding (RFC 5802), OAUTHBEARER (RFC 7628): Kafka's PlainSaslServer,
ScramSaslServer and OAuthBearerSaslServer. Their transport belongs to the connection. A client learns whether a password
was right, and never whether a user exists: both take the same steps.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Generator, Mapping
from typing import NamedTuple

from .errors import ErrorCode, KafkaError
from .sasl import SCRAM_HASHES

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384
"""Limits of SCRAM iterations, as in Kafka."""
LONGEST_USER = 1024
LARGEST_MESSAGE_BYTES: Mapping[str, int] = {
    "PLAIN": 16 << 10,
    **dict.fromkeys(SCRAM_HASHES, 8 << 10),
    # Tokens with many claims, or with the groups of a user of Active Directory.
    "OAUTHBEARER": 64 << 10,
    "GSSAPI": 64 << 10,
}
"""Maximum message of a client by its mechanism: it is parsed on the broker's loop before authentication. Kafka has one
limit for all mechanisms, `sasl.server.max.receive.size`.
"""
REQUEST_HEAD_BYTES = 4 << 10
"""Bytes of a request before the message: mostly the client's id."""
FIRST_REQUEST_BYTES = 8 << 10
"""Maximum request before a mechanism is selected: ApiVersions and SaslHandshake."""
_TOKENS = 3
_BEARER = re.compile(
    rb"[ny],(?:a=(?P<identity>(?:[\x02-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,"
    rb"\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_TOKEN = re.compile(rb"[-_.~+/A-Za-z0-9]+=*")
BEARER_REFUSED = b'{"status":"invalid_token"}'
"""The error for a rejected token; the client must acknowledge it."""


class ScramCredential(NamedTuple):
    """Verifier of a password, with which it cannot be used (RFC 5802, section 3)."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @classmethod
    def of_salted_password(cls, mechanism: str, salt: bytes, salted: bytes, iterations: int) -> ScramCredential:
        """Create from the PBKDF2 hash that clients send to set a password."""
        algorithm = SCRAM_HASHES[mechanism]
        client_key = hmac.digest(salted, b"Client Key", algorithm)
        server_key = hmac.digest(salted, b"Server Key", algorithm)
        return cls(salt, hashlib.new(algorithm, client_key).digest(), server_key, iterations)

    @classmethod
    def of_text(cls, text: str) -> ScramCredential:
        """Parse `salt=…,stored_key=…,server_key=…,iterations=…`, the form in which Kafka stores it. Raises
        ValueError.
        """
        try:
            fields = dict(part.split("=", 1) for part in text.split(","))
            salt, stored, server = (base64.b64decode(fields[key]) for key in ("salt", "stored_key", "server_key"))
            return cls(salt, stored, server, int(fields["iterations"]))
        except (KeyError, ValueError) as error:
            raise ValueError("the text is not a SCRAM credential") from error

    def text(self) -> str:
        """Format as Kafka stores it."""
        salt, stored, server = (
            base64.b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"


def new_credentials(password: str, salt: bytes) -> dict[str, ScramCredential]:
    """Return the verifiers of a password, by mechanism. It takes milliseconds, on purpose."""
    found = {}
    for mechanism, algorithm in SCRAM_HASHES.items():
        salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, MIN_ITERATIONS)
        found[mechanism] = ScramCredential.of_salted_password(mechanism, salt, salted, MIN_ITERATIONS)
    return found


class PlainLogin(NamedTuple):
    """A client's message in PLAIN."""

    username: str
    password: str


def read_plain(message: bytes) -> PlainLogin:
    """Parse a message. Raises KafkaError SASL_AUTHENTICATION_FAILED."""
    tokens = message.split(b"\0")
    if len(tokens) != _TOKENS:
        raise failed(f"Invalid SASL/PLAIN response: expected {_TOKENS} tokens, got {len(tokens)}")
    try:
        identity, username, password = (token.decode() for token in tokens)
    except UnicodeDecodeError:
        raise failed("Authentication failed: not UTF-8") from None
    if not username:
        raise failed("Authentication failed: username not specified")
    if not password:
        raise failed("Authentication failed: password not specified")
    if identity not in ("", username):
        raise failed("Authentication failed: Client requested an authorization id that is different from username")
    return PlainLogin(username, password)


def check_plain(login: PlainLogin, passwords: Mapping[str, str]) -> None:
    """Verify the password. Raises KafkaError SASL_AUTHENTICATION_FAILED."""
    expected = passwords.get(login.username)
    # Compared in any case: the response time must not reveal whether the user exists.
    is_right = hmac.compare_digest((expected or "\0").encode(), login.password.encode())
    if expected is None or not is_right:
        raise failed("Authentication failed: Invalid username or password")


class BearerFirst(NamedTuple):
    """A client's message in OAUTHBEARER."""

    token: str
    authorization_id: str


def read_bearer(message: bytes) -> BearerFirst:
    """Parse a message. Raises KafkaError SASL_AUTHENTICATION_FAILED."""
    found = _BEARER.fullmatch(message)
    if found is None:
        raise failed("Invalid OAUTHBEARER client first message")
    pairs = dict(pair.split(b"=", 1) for pair in found["pairs"].split(b"\x01") if pair)
    scheme, _, token = pairs.get(b"auth", b"").partition(b" ")
    if scheme.lower() != b"bearer" or not _TOKEN.fullmatch(token.strip()):
        raise failed("Invalid OAUTHBEARER client first message: 'auth' is not a bearer token")
    identity = (found["identity"] or b"").decode().replace("=2C", ",").replace("=3D", "=")
    return BearerFirst(token.strip().decode(), identity)


class ScramFirst(NamedTuple):
    """A client's first message."""

    username: str
    nonce: str
    bare: str
    """The message without its part for channel binding; it is signed."""
    header: str
    extensions: Mapping[str, str]


def read_scram_first(message: bytes) -> ScramFirst:
    """Parse a message. Raises KafkaError SASL_AUTHENTICATION_FAILED."""
    try:
        flag, identity, bare = message.decode().split(",", 2)
        fields = [part.split("=", 1) for part in bare.split(",")]
        (user_key, user), (nonce_key, nonce), *extensions = ((key, value) for key, value in fields)
    except ValueError:
        raise failed("Invalid SCRAM client first message") from None
    if flag not in ("n", "y") or user_key != "n" or nonce_key != "r" or not nonce or not nonce.isprintable():
        raise failed("Invalid SCRAM client first message")
    name = user.replace("=2C", ",").replace("=3D", "=")
    if not name or len(name) > LONGEST_USER:
        raise failed("Invalid SCRAM client first message")
    if identity and identity != f"a={user}":
        raise failed("Authentication failed: Client requested an authorization id that is different from username")
    return ScramFirst(name, nonce, bare, f"{flag},{identity},", dict(extensions))


def scram(mechanism: str, first: ScramFirst, credential: ScramCredential, nonce: str) -> Generator[bytes, bytes, bytes]:
    """Yield the challenge, receive the proof, and return the last message.

    `nonce` is the broker's own, of this exchange. Raises KafkaError SASL_AUTHENTICATION_FAILED.
    """
    algorithm = SCRAM_HASHES[mechanism]
    both = f"{first.nonce}{nonce}"
    challenge = f"r={both},s={base64.b64encode(credential.salt).decode()},i={credential.iterations}"
    message = yield challenge.encode()
    wrong = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    try:
        without_proof, _, proof_text = message.decode().rpartition(",p=")
        fields = dict(part.split("=", 1) for part in without_proof.split(","))
        proof = base64.b64decode(proof_text, validate=True)
        binding = base64.b64decode(fields["c"], validate=True).decode()
        said = fields["r"]
    except (ValueError, KeyError, binascii.Error):
        raise failed(wrong) from None
    signed = f"{first.bare},{challenge},{without_proof}".encode()
    signature = hmac.digest(credential.stored_key, signed, algorithm)
    # librdkafka before 2.6.1 repeats its own nonce before the two; Kafka up to 3.9 accepts that, too.
    if len(proof) != len(signature) or binding != first.header or said not in (both, f"{first.nonce}{both}"):
        raise failed(wrong)
    client_key = (int.from_bytes(proof, "big") ^ int.from_bytes(signature, "big")).to_bytes(len(proof), "big")
    if not hmac.compare_digest(hashlib.new(algorithm, client_key).digest(), credential.stored_key):
        raise failed(wrong)
    return b"v=" + base64.b64encode(hmac.digest(credential.server_key, signed, algorithm))


def stand_in(mechanism: str, username: str, secret: bytes) -> ScramCredential:
    """Return a credential for an unknown user: always the same for the name, and no password matches it."""
    algorithm = SCRAM_HASHES[mechanism]
    salt, stored, server = (hmac.digest(secret, part + username.encode(), algorithm) for part in (b"1", b"2", b"3"))
    return ScramCredential(salt[:20], stored, server, MIN_ITERATIONS)


def failed(reason: str) -> KafkaError:
    """Return the error for a client that has failed to authenticate."""
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, reason)
