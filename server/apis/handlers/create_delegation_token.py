"""CreateDelegationToken (key 38, KIP-48, KIP-373): creates a token with which clients authenticate as a user."""

from __future__ import annotations

from ....protocol.acls import AclOperation, AclResourceType
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ...metadata.token_store import DelegationToken, kept_size
from ...security.delegation_token_manager import DelegationTokenManager
from ..delegation_token_requests import check_token_requests_allowed, parse_principal, split_principal
from ..request_context import RequestContext

MAX_RENEWERS = 100
LONGEST_RENEWERS = 8192
"""Bytes of all their names as they are kept: a user may have a thousand tokens, and each is kept with them."""
FIRST_VERSION_WITH_OWNERS = 3


async def handle(
    ctx: RequestContext, request: CreateDelegationTokenRequest, *, delegation_token_manager: DelegationTokenManager
) -> CreateDelegationTokenResponse:
    """Create a token for the client, or for another user if the client is authorized. Raises KafkaError."""
    check_token_requests_allowed(ctx)
    owner = requester = str(ctx.session.principal)
    if request.owner_principal_name:
        owner = parse_principal(request.owner_principal_type or "", request.owner_principal_name)
    response = _between(owner, requester, ctx.api_version)
    try:
        token = await _made(ctx, request, owner, requester, delegation_token_manager)
    except KafkaError as error:
        response.error_code = error.code
        return response
    response.issue_timestamp_ms, response.max_timestamp_ms = token.issue_ms, token.max_ms
    response.expiry_timestamp_ms = token.expiry_ms
    response.token_id, response.hmac = token.token_id, delegation_token_manager.secret(token.token_id)
    return response


def _between(owner: str, requester: str, version: int) -> CreateDelegationTokenResponse:
    """Return a response without a token."""
    response = CreateDelegationTokenResponse(issue_timestamp_ms=-1, expiry_timestamp_ms=-1, max_timestamp_ms=-1)
    response.principal_type, response.principal_name = split_principal(owner)
    if version >= FIRST_VERSION_WITH_OWNERS:
        kind, name = split_principal(requester)
        response.token_requester_principal_type, response.token_requester_principal_name = kind, name
    return response


async def _made(
    ctx: RequestContext,
    request: CreateDelegationTokenRequest,
    owner: str,
    requester: str,
    delegation_token_manager: DelegationTokenManager,
) -> DelegationToken:
    """Raises KafkaError."""
    if owner != requester and not ctx.is_authorized(AclOperation.CREATE_TOKENS, AclResourceType.USER, owner):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    if len(request.renewers) > MAX_RENEWERS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"A delegation token can have at most {MAX_RENEWERS} renewers")
    if sum(kept_size(one.principal_name) for one in request.renewers) > LONGEST_RENEWERS:
        text = f"The renewers of a delegation token have names of {LONGEST_RENEWERS} bytes at most in all"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    renewers = [parse_principal(one.principal_type, one.principal_name) for one in request.renewers]
    return await delegation_token_manager.create(owner, requester, renewers, request.max_lifetime_ms)
