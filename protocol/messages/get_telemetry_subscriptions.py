"""GetTelemetrySubscriptions (key 71): which client metrics the broker would like (KIP-714).

Versions 0, flexible from 0.
"""

from __future__ import annotations

from uuid import UUID

from ..schema import boolean, int8, int16, int32, message, string, uuid, wire


@message(versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest:
    client_instance_id: UUID = wire(uuid, "0+")


@message(versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    client_instance_id: UUID = wire(uuid, "0+")
    subscription_id: int = wire(int32, "0+")
    accepted_compression_types: list[int] = wire([int8], "0+")
    push_interval_ms: int = wire(int32, "0+")
    telemetry_max_bytes: int = wire(int32, "0+")
    delta_temporality: bool = wire(boolean, "0+")
    requested_metrics: list[str] = wire([string], "0+")
