"""RenewDelegationToken (key 39, KIP-48): extends the lifetime of a token, up to its maximum lifetime."""

from __future__ import annotations

from ....protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ...security.delegation_token_manager import DelegationTokenManager
from ..delegation_token_requests import check_token_requests_allowed
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext, request: RenewDelegationTokenRequest, *, delegation_token_manager: DelegationTokenManager
) -> RenewDelegationTokenResponse:
    """Renew a token for its owner, its requester or a renewer. Raises KafkaError."""
    check_token_requests_allowed(ctx)
    principal = str(ctx.session.principal)
    expiry_ms = await delegation_token_manager.renew(principal, bytes(request.hmac), request.renew_period_ms)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)
