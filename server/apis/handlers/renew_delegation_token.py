"""RenewDelegationToken (key 39, KIP-48): have a token last longer, up to its longest life."""

from __future__ import annotations

from ....protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ..ports import Tokens
from ..request_context import RequestContext
from ..token_messages import check_allowed


async def handle(
    ctx: RequestContext, request: RenewDelegationTokenRequest, *, delegation_tokens: Tokens
) -> RenewDelegationTokenResponse:
    """For owner, requester and renewers. Raises KafkaError."""
    check_allowed(ctx)
    principal = str(ctx.session.principal)
    expiry_ms = await delegation_tokens.renew(principal, bytes(request.hmac), request.renew_period_ms)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)
