"""DescribeDelegationToken (key 41, KIP-48): the tokens that a client has or renews, or may see, secrets included."""

from __future__ import annotations

from ....protocol.acls import AclOperation, AclResourceType
from ....protocol.codec import encode_item
from ....protocol.encoded_items import EncodedItems
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    EncodedDelegationTokens,
)
from ...metadata.token_store import DelegationToken
from ...security.delegation_token_manager import DelegationTokenManager
from ..delegation_token_requests import check_token_requests_allowed, split_principal
from ..request_context import RequestContext
from ..response_budget import ResponseBudget

FIRST_VERSION_WITH_REQUESTERS = 3
MAX_BYTES = 16 << 20
"""Encoded tokens in one response: eighty thousand with one renewer. The tokens of one user take up to nine megabytes,
with the longest names of renewers. But any number of users may name the same renewer, and some clients may see all."""
_TOKEN, _USER = AclResourceType.DELEGATION_TOKEN, AclResourceType.USER


async def handle(
    ctx: RequestContext, request: DescribeDelegationTokenRequest, *, delegation_token_manager: DelegationTokenManager
) -> EncodedDelegationTokens:
    """Describe the tokens of the requested owners, or of all. Raise KafkaError, POLICY_VIOLATION for too many: a
    client cannot distinguish a part of them from all.

    Each token is encoded when it is read: the objects of all tokens would take up to six times the memory.
    """
    check_token_requests_allowed(ctx)
    asker = str(ctx.session.principal)
    owners = None
    if request.owners is not None:
        owners = {f"{one.principal_type}:{one.principal_name}" for one in request.owners}

    def is_wanted(token: DelegationToken) -> bool:
        if owners is not None and owners.isdisjoint((token.owner, token.requester, *token.renewers)):
            return False
        return (
            token.concerns(asker)
            or ctx.is_authorized(AclOperation.DESCRIBE, _TOKEN, token.token_id)
            or ctx.is_authorized(AclOperation.DESCRIBE_TOKENS, _USER, token.owner)
        )

    rows, budget = EncodedItems(), ResponseBudget(MAX_BYTES)
    async for token in delegation_token_manager.all():
        if is_wanted(token):
            if budget.is_exhausted:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION,
                    "The delegation tokens exceed the size limit of a response. Request the tokens of single owners",
                )
            row = encode_item(_described(token, delegation_token_manager, ctx.api_version), ctx.api_version)
            budget.spend(len(row))
            rows.add(row)
    return EncodedDelegationTokens(tokens=rows)


def _described(
    token: DelegationToken, delegation_token_manager: DelegationTokenManager, version: int
) -> DescribedDelegationToken:
    kind, name = split_principal(token.owner)
    row = DescribedDelegationToken(
        principal_type=kind,
        principal_name=name,
        issue_timestamp=token.issue_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=delegation_token_manager.secret(token.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, name in map(split_principal, token.renewers)
        ],
    )
    if version >= FIRST_VERSION_WITH_REQUESTERS:
        row.token_requester_principal_type, row.token_requester_principal_name = split_principal(token.requester)
    return row
