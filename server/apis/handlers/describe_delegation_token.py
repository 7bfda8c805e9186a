"""DescribeDelegationToken (key 41, KIP-48): the tokens that a client has or renews, or may see, secrets included."""

from __future__ import annotations

from ....protocol.acls import AclOperation, AclResourceType
from ....protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ...metadata.token_store import DelegationToken
from ..ports import Tokens
from ..request_context import RequestContext
from ..token_messages import check_allowed, kind_and_name

FIRST_VERSION_WITH_REQUESTERS = 3
_TOKEN, _USER = AclResourceType.DELEGATION_TOKEN, AclResourceType.USER


async def handle(
    ctx: RequestContext, request: DescribeDelegationTokenRequest, *, delegation_tokens: Tokens
) -> DescribeDelegationTokenResponse:
    """Of certain owners, or of all. Raises KafkaError."""
    check_allowed(ctx)
    asker = str(ctx.session.principal)
    owners = None
    if request.owners is not None:
        owners = {f"{one.principal_type}:{one.principal_name}" for one in request.owners}

    def is_wanted(token: DelegationToken) -> bool:
        if owners is not None and owners.isdisjoint((token.owner, token.requester, *token.renewers)):
            return False
        return (
            token.concerns(asker)
            or ctx.may(AclOperation.DESCRIBE, _TOKEN, token.token_id)
            or ctx.may(AclOperation.DESCRIBE_TOKENS, _USER, token.owner)
        )

    described = []
    async for token in delegation_tokens.all():
        if is_wanted(token):
            row = _described(token, delegation_tokens)
            if ctx.api_version >= FIRST_VERSION_WITH_REQUESTERS:
                kind, name = kind_and_name(token.requester)
                row.token_requester_principal_type, row.token_requester_principal_name = kind, name
            described.append(row)
    return DescribeDelegationTokenResponse(tokens=described)


def _described(token: DelegationToken, tokens: Tokens) -> DescribedDelegationToken:
    kind, name = kind_and_name(token.owner)
    return DescribedDelegationToken(
        principal_type=kind,
        principal_name=name,
        issue_timestamp=token.issue_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=tokens.secret(token.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, name in map(kind_and_name, token.renewers)
        ],
    )
