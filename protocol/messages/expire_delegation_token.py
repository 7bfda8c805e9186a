"""ExpireDelegationToken (key 40): shorten or end the life of a delegation token.

Versions 0-2, flexible from 2.
   1  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
"""

from __future__ import annotations

from ..schema import bytes_, int16, int32, int64, message, wire


@message(versions="0-2", flexible="2+")
class ExpireDelegationTokenRequest:
    hmac: bytes = wire(bytes_, "0+")
    expiry_time_period_ms: int = wire(int64, "0+")


@message(versions="0-2", flexible="2+")
class ExpireDelegationTokenResponse:
    error_code: int = wire(int16, "0+")
    expiry_timestamp_ms: int = wire(int64, "0+")
    throttle_time_ms: int = wire(int32, "0+")
