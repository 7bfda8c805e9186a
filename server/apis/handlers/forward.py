"""Requests that a broker of a KRaft cluster forwards to the active controller (KIP-590)."""

from __future__ import annotations

from typing import Any

from ...controller.forwarding_manager import ForwardingManager
from ..request_context import RequestContext


async def handle(ctx: RequestContext, request: Any, *, forwarding_manager: ForwardingManager) -> Any:
    """Return the controller's response. Raises KafkaError."""
    return await forwarding_manager.forward_request(ctx.session, ctx.api_version, request, client_id=ctx.client_id)
