"""GetTelemetrySubscriptions (key 71): which metrics a client shall push, and how often (KIP-714)."""

from __future__ import annotations

from ....protocol.compression import Compression
from ....protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ...config.settings import Settings
from ...telemetry.client_telemetry import ClientTelemetry
from ..request_context import RequestContext

ACCEPTED = [Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY]
"""In this order clients choose."""


def handle(
    ctx: RequestContext,
    request: GetTelemetrySubscriptionsRequest,
    *,
    config: Settings,
    telemetry: ClientTelemetry,
) -> GetTelemetrySubscriptionsResponse:
    """Totals are asked for and not what was added: a push that is lost then changes nothing. Raises KafkaError."""
    client = telemetry.wish(ctx.session, ctx.client_id, request.client_instance_id)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=client.id,
        subscription_id=client.subscription,
        accepted_compression_types=[*ACCEPTED],
        push_interval_ms=client.wish.interval_ms,
        telemetry_max_bytes=config.telemetry_max_bytes,
        delta_temporality=False,
        requested_metrics=[*client.wish.metrics],
    )
