"""Requests that a broker of a KRaft cluster forwards to the active controller (KIP-590)."""

from __future__ import annotations

from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ...controller.forwarding_manager import ForwardingManager
from ..request_context import RequestContext


async def handle(ctx: RequestContext, request: Any, *, forwarding_manager: ForwardingManager) -> Any:
    """Return the controller's response, or close the connection and return None. Raises KafkaError.

    The controller enforces its quotas, such as `controller_mutation_rate`, and this broker throttles the client.
    """
    try:
        response = await forwarding_manager.forward_request(
            ctx.session, ctx.api_version, request, client_id=ctx.client_id, size=ctx.size
        )
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        # As in Kafka: the client connects again and receives the versions of this controller (`ApiVersionManager`).
        ctx.close()
        return None
    # As Kafka's sendForwardedResponse: the connection of the client is muted for the throttle time of the controller.
    if (throttle_time_ms := getattr(response, "throttle_time_ms", 0)) > 0:
        ctx.throttle(throttle_time_ms / 1000)
    return response
