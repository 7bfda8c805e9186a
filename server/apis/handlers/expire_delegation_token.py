"""ExpireDelegationToken (key 40, KIP-48): have a token end, at once or then."""

from __future__ import annotations

from ....protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ..ports import Tokens
from ..request_context import RequestContext
from ..token_messages import check_allowed


async def handle(
    ctx: RequestContext, request: ExpireDelegationTokenRequest, *, delegation_tokens: Tokens
) -> ExpireDelegationTokenResponse:
    """For owner, requester and renewers. Raises KafkaError."""
    check_allowed(ctx)
    principal = str(ctx.session.principal)
    expiry_ms = await delegation_tokens.expire(principal, bytes(request.hmac), request.expiry_time_period_ms)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_ms)
