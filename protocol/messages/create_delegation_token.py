"""CreateDelegationToken (key 38): issue a delegation token.

Versions 0-3, flexible from 2.
   1  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   3  token owner differing from requester
"""

from __future__ import annotations

from ..schema import bytes_, int16, int32, int64, message, string, wire


@message
class CreatableRenewers:
    principal_type: str = wire(string, "0+")
    principal_name: str = wire(string, "0+")


@message(versions="0-3", flexible="2+")
class CreateDelegationTokenRequest:
    owner_principal_type: str | None = wire(string, "3+", null="3+")
    owner_principal_name: str | None = wire(string, "3+", null="3+")
    renewers: list[CreatableRenewers] = wire([CreatableRenewers], "0+")
    max_lifetime_ms: int = wire(int64, "0+")


@message(versions="0-3", flexible="2+")
class CreateDelegationTokenResponse:
    error_code: int = wire(int16, "0+")
    principal_type: str = wire(string, "0+")
    principal_name: str = wire(string, "0+")
    token_requester_principal_type: str = wire(string, "3+")
    token_requester_principal_name: str = wire(string, "3+")
    issue_timestamp_ms: int = wire(int64, "0+")
    expiry_timestamp_ms: int = wire(int64, "0+")
    max_timestamp_ms: int = wire(int64, "0+")
    token_id: str = wire(string, "0+")
    hmac: bytes = wire(bytes_, "0+")
    throttle_time_ms: int = wire(int32, "0+")
