"""GetTelemetrySubscriptions (key 71): the metrics that a client sends, and their interval (KIP-714)."""

from __future__ import annotations

from ....protocol.compression import Compression
from ....protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ...config.settings import Settings
from ...telemetry.client_metrics_manager import ClientMetricsManager
from ..request_context import RequestContext

ACCEPTED = [Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY]
"""The supported compression types in the order of preference."""


def handle(
    ctx: RequestContext,
    request: GetTelemetrySubscriptionsRequest,
    *,
    config: Settings,
    client_metrics_manager: ClientMetricsManager,
) -> GetTelemetrySubscriptionsResponse:
    """Request totals instead of deltas: totals are correct after a lost push. Raise KafkaError."""
    client = client_metrics_manager.subscriptions_of(ctx.session, ctx.client_id, request.client_instance_id)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=client.id,
        subscription_id=client.subscription,
        accepted_compression_types=[*ACCEPTED],
        push_interval_ms=client.requested.interval_ms,
        telemetry_max_bytes=config.telemetry_max_bytes,
        delta_temporality=False,
        requested_metrics=[*client.requested.metrics],
    )
