"""The argument of `kafka-storage format --add-scram`, as Kafka's ScramParser reads it.

`SCRAM-SHA-256=[name=alice,password=secret]`, optionally with `iterations` and `salt`; or `salt` and `saltedpassword`
(both base64) in place of the password.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable
from typing import NamedTuple

from ....protocol.sasl import SCRAM_HASHES
from ....protocol.sasl_server import LONGEST_USER, MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential

SALT_BYTES = 20
_KEYS = ("name", "salt", "iterations", "password", "saltedpassword")


class ScramLogin(NamedTuple):
    """A user and the secret from which the credential is derived."""

    name: str
    mechanism: str
    password: str | None
    """None if there is a salted password."""
    salt: bytes | None = None
    """None for a random salt."""
    salted_password: bytes | None = None
    iterations: int = MIN_ITERATIONS

    def credential(self, token_bytes: Callable[[int], bytes]) -> ScramCredential:
        """Derive the credential, which takes milliseconds by design (RFC 5802, section 3)."""
        salt = token_bytes(SALT_BYTES) if self.salt is None else self.salt
        salted = self.salted_password
        if salted is None:
            assert self.password is not None, "a login without a salted password has a password"
            algorithm = SCRAM_HASHES[self.mechanism]
            salted = hashlib.pbkdf2_hmac(algorithm, self.password.encode(), salt, self.iterations)
        return ScramCredential.of_salted_password(self.mechanism, salt, salted, self.iterations)


def parse_scram(argument: str) -> ScramLogin:
    """Parse an argument. Raises ValueError, whose message contains no password."""
    mechanism, equals, rest = argument.strip().partition("=")
    if not equals:
        raise ValueError("--add-scram: expected MECHANISM=[name=USER,password=PASSWORD]")
    if mechanism not in SCRAM_HASHES:
        raise ValueError(f"--add-scram {mechanism}: unknown mechanism. Expected one of {', '.join(SCRAM_HASHES)}")
    if not (rest.startswith("[") and rest.endswith("]") and len(rest) > 1):
        raise ValueError(f"--add-scram {mechanism}: expected [ and ] around the user's values")
    values: dict[str, str] = {}
    for part in rest[1:-1].split(","):
        key, equals, value = part.partition("=")
        if not equals or key not in _KEYS:
            # An unknown key may be the rest of a password with a comma, which the message must not contain.
            raise ValueError(f"--add-scram {mechanism}: expected KEY=VALUE with one of the keys {', '.join(_KEYS)}")
        values[key] = value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
    name = values.get("name", "")
    where = f"--add-scram {mechanism}=[name={name}]"
    if not 0 < len(name) <= LONGEST_USER:
        raise ValueError(f"--add-scram {mechanism}: expected a name of 1 to {LONGEST_USER} characters")
    if not (values.get("password") or values.get("saltedpassword")):
        raise ValueError(f"{where}: expected a password or a saltedpassword")
    if not values.get("password") and "salt" not in values:
        raise ValueError(f"{where}: a saltedpassword requires its salt")
    iterations = values.get("iterations", str(MIN_ITERATIONS))
    is_number = iterations.isdecimal() and len(iterations) <= len(str(MAX_ITERATIONS))
    if not is_number or not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
        raise ValueError(f"{where}: expected iterations from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    salt, salted = (
        _decoded(values[key], f"{where}: {key}") if key in values else None for key in ("salt", "saltedpassword")
    )
    password = values.get("password") or None
    # Kafka ignores the salted password if there is a password, too.
    return ScramLogin(name, mechanism, password, salt, None if password else salted, int(iterations))


def _decoded(text: str, what: str) -> bytes:
    try:
        found = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if not 0 < len(found) <= LONGEST_USER:
        raise ValueError(f"{what}: expected 1 to {LONGEST_USER} bytes in base64")
    return found
