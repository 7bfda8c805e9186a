"""PushTelemetry (key 72): client metrics on their way to the broker (KIP-714).

Versions 0, flexible from 0.
"""

from __future__ import annotations

from uuid import UUID

from ..schema import boolean, bytes_, int8, int16, int32, message, uuid, wire


@message(versions="0", flexible="0+")
class PushTelemetryRequest:
    client_instance_id: UUID = wire(uuid, "0+")
    subscription_id: int = wire(int32, "0+")
    terminating: bool = wire(boolean, "0+")
    compression_type: int = wire(int8, "0+")
    metrics: bytes = wire(bytes_, "0+")


@message(versions="0", flexible="0+")
class PushTelemetryResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
