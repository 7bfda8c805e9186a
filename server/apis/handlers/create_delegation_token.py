"""CreateDelegationToken (key 38, KIP-48, KIP-373): a name and a secret by which somebody else is let in for a user."""

from __future__ import annotations

from ....protocol.acls import AclOperation, AclResourceType
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ...security.delegation_tokens import DelegationTokens
from ..request_context import RequestContext
from ..token_messages import check_allowed, kind_and_name, principal_of

MOST_RENEWERS = 100


async def handle(
    ctx: RequestContext, request: CreateDelegationTokenRequest, *, delegation_tokens: DelegationTokens
) -> CreateDelegationTokenResponse:
    """For the client itself, or for another user if it may. Raises KafkaError."""
    check_allowed(ctx)
    owner = requester = str(ctx.session.principal)
    if request.owner_principal_name:
        owner = principal_of(request.owner_principal_type or "", request.owner_principal_name)
    if owner != requester and not ctx.may(AclOperation.CREATE_TOKENS, AclResourceType.USER, owner):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    if len(request.renewers) > MOST_RENEWERS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"A delegation token has {MOST_RENEWERS} renewers at most")
    renewers = [principal_of(one.principal_type, one.principal_name) for one in request.renewers]
    token = await delegation_tokens.create(owner, requester, renewers, request.max_lifetime_ms)
    owner_kind, owner_name = kind_and_name(token.owner)
    kind, name = kind_and_name(token.requester)
    return CreateDelegationTokenResponse(
        principal_type=owner_kind,
        principal_name=owner_name,
        token_requester_principal_type=kind,
        token_requester_principal_name=name,
        issue_timestamp_ms=token.issue_ms,
        expiry_timestamp_ms=token.expiry_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.token_id,
        hmac=delegation_tokens.secret(token.token_id),
    )
