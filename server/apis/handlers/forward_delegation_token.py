"""CreateDelegationToken, RenewDelegationToken and ExpireDelegationToken (keys 38 to 40) in a KRaft cluster."""

from __future__ import annotations

from typing import Any

from ...controller.forwarding_manager import ForwardingManager
from ..delegation_token_requests import check_token_requests_allowed
from ..request_context import RequestContext
from . import forward


async def handle(ctx: RequestContext, request: Any, *, forwarding_manager: ForwardingManager) -> Any:
    """Return the controller's response. Raises KafkaError.

    The controller cannot check the listener of the client: it checks that of the connection from this broker.
    """
    check_token_requests_allowed(ctx)
    return await forward.handle(ctx, request, forwarding_manager=forwarding_manager)
