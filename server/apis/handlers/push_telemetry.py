"""PushTelemetry (key 72): receives the metrics of a client (KIP-714)."""

from __future__ import annotations

from ....protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ...telemetry.client_metrics_manager import ClientMetricsManager
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext, request: PushTelemetryRequest, *, client_metrics_manager: ClientMetricsManager
) -> PushTelemetryResponse:
    """Raises KafkaError."""
    await client_metrics_manager.push(ctx.session, request)
    return PushTelemetryResponse()
