"""ExpireDelegationToken (key 40, KIP-48): ends a token immediately or after a period."""

from __future__ import annotations

from ....protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ...security.delegation_token_manager import DelegationTokenManager
from ..delegation_token_requests import check_token_requests_allowed
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext, request: ExpireDelegationTokenRequest, *, delegation_token_manager: DelegationTokenManager
) -> ExpireDelegationTokenResponse:
    """Expire a token for its owner, its requester or a renewer. Raises KafkaError."""
    check_token_requests_allowed(ctx)
    principal = str(ctx.session.principal)
    expiry_ms = await delegation_token_manager.expire(principal, bytes(request.hmac), request.expiry_time_period_ms)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)
