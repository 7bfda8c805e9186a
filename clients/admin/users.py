"""SCRAM credentials of users (KIP-554)."""

from __future__ import annotations

import hashlib
from enum import IntEnum
from typing import NamedTuple

from ...protocol.messages.alter_user_scram_credentials import ScramCredentialUpsertion

DEFAULT_ITERATIONS = 4096
"""Iterations of kafka-configs.sh, the minimum of Kafka's brokers."""
SALT_BYTES = 20


class ScramMechanism(IntEnum):
    """Numbers of the mechanisms in requests, as in Kafka's ScramMechanism."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism_name(self) -> str:
        """The name in `sasl.mechanism`."""
        return self.name.replace("_", "-")

    @classmethod
    def of(cls, name: str) -> ScramMechanism:
        """Raises ValueError for a name that is not a mechanism."""
        try:
            return cls[name.upper().replace("-", "_")]
        except KeyError:
            expected = ", ".join(one.mechanism_name for one in cls)
            raise ValueError(f"{name}: unknown SCRAM mechanism. Expected one of {expected}") from None


class ScramCredentialInfo(NamedTuple):
    """One credential of a user; brokers return neither the password nor its hash."""

    mechanism: ScramMechanism
    iterations: int


def upsertion(
    user: str, password: str, mechanism: ScramMechanism, iterations: int, salt: bytes
) -> ScramCredentialUpsertion:
    """Return the request's entry, with the salted password in place of the password (RFC 5802, section 3)."""
    digest = mechanism.name.removeprefix("SCRAM_").replace("_", "").lower()
    return ScramCredentialUpsertion(
        name=user,
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        salted_password=hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations),
    )
