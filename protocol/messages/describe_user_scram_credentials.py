"""DescribeUserScramCredentials (key 50): which SCRAM credentials exist.

Versions 0, flexible from 0.
"""

from __future__ import annotations

from ..schema import int8, int16, int32, message, string, wire


@message
class UserName:
    name: str = wire(string, "0+")


@message(versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None = wire([UserName], "0+", null="0+")


@message
class CredentialInfo:
    mechanism: int = wire(int8, "0+")
    iterations: int = wire(int32, "0+")


@message
class DescribeUserScramCredentialsResult:
    user: str = wire(string, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+")
    credential_infos: list[CredentialInfo] = wire([CredentialInfo], "0+")


@message(versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+")
    results: list[DescribeUserScramCredentialsResult] = wire([DescribeUserScramCredentialsResult], "0+")
