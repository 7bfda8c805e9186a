"""AlterUserScramCredentials (key 51): set or delete SCRAM credentials.

Versions 0, flexible from 0.
"""

from __future__ import annotations

from ..schema import bytes_, int8, int16, int32, message, string, wire


@message
class ScramCredentialDeletion:
    name: str = wire(string, "0+")
    mechanism: int = wire(int8, "0+")


@message
class ScramCredentialUpsertion:
    name: str = wire(string, "0+")
    mechanism: int = wire(int8, "0+")
    iterations: int = wire(int32, "0+")
    salt: bytes = wire(bytes_, "0+")
    salted_password: bytes = wire(bytes_, "0+")


@message(versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion] = wire([ScramCredentialDeletion], "0+")
    upsertions: list[ScramCredentialUpsertion] = wire([ScramCredentialUpsertion], "0+")


@message
class AlterUserScramCredentialsResult:
    user: str = wire(string, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+")


@message(versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = wire(int32, "0+")
    results: list[AlterUserScramCredentialsResult] = wire([AlterUserScramCredentialsResult], "0+")
