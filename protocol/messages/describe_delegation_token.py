"""DescribeDelegationToken (key 41): list delegation tokens.

Versions 0-3, flexible from 2.
   1  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   3  requester fields
"""

from __future__ import annotations

from ..encoded_items import EncodedItems
from ..schema import bytes_, encoded_items, int16, int32, int64, message, string, wire


@message
class DescribeDelegationTokenOwner:
    principal_type: str = wire(string, "0+")
    principal_name: str = wire(string, "0+")


@message(versions="0-3", flexible="2+")
class DescribeDelegationTokenRequest:
    owners: list[DescribeDelegationTokenOwner] | None = wire([DescribeDelegationTokenOwner], "0+", null="0+")


@message
class DescribedDelegationTokenRenewer:
    principal_type: str = wire(string, "0+")
    principal_name: str = wire(string, "0+")


@message(versions="0-3", flexible="2+")
class DescribedDelegationToken:
    """Has versions of its own to be encoded alone."""

    principal_type: str = wire(string, "0+")
    principal_name: str = wire(string, "0+")
    token_requester_principal_type: str = wire(string, "3+")
    token_requester_principal_name: str = wire(string, "3+")
    issue_timestamp: int = wire(int64, "0+")
    expiry_timestamp: int = wire(int64, "0+")
    max_timestamp: int = wire(int64, "0+")
    token_id: str = wire(string, "0+")
    hmac: bytes = wire(bytes_, "0+")
    renewers: list[DescribedDelegationTokenRenewer] = wire([DescribedDelegationTokenRenewer], "0+")


@message(versions="0-3", flexible="2+")
class DescribeDelegationTokenResponse:
    error_code: int = wire(int16, "0+")
    tokens: list[DescribedDelegationToken] = wire([DescribedDelegationToken], "0+")
    throttle_time_ms: int = wire(int32, "0+")


@message(versions="0-3", flexible="2+")
class EncodedDelegationTokens:
    """A DescribeDelegationTokenResponse with tokens that are encoded already."""

    error_code: int = wire(int16, "0+")
    tokens: EncodedItems = wire(encoded_items, "0+")
    throttle_time_ms: int = wire(int32, "0+")
