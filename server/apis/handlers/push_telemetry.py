"""PushTelemetry (key 72): what a client has measured (KIP-714)."""

from __future__ import annotations

from ....protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ...telemetry.client_telemetry import ClientTelemetry
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext, request: PushTelemetryRequest, *, telemetry: ClientTelemetry
) -> PushTelemetryResponse:
    """Raises KafkaError."""
    await telemetry.push(ctx.session, request)
    return PushTelemetryResponse()
