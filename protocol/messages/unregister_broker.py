"""UnregisterBroker (key 64): remove the registration of a broker that is not alive (KIP-631).

Version 0, flexible from 0.
"""

from __future__ import annotations

from ..schema import int16, int32, message, string, wire


@message(versions="0", flexible="0+")
class UnregisterBrokerRequest:
    broker_id: int = wire(int32, "0+")


@message(versions="0", flexible="0+")
class UnregisterBrokerResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+")
