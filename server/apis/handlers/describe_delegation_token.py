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
from ..answer_budget import Budget
from ..ports import Tokens
from ..request_context import RequestContext
from ..token_messages import check_allowed, kind_and_name

FIRST_VERSION_WITH_REQUESTERS = 3
MOST_BYTES = 16 << 20
"""Of tokens in an answer: eighty thousand with one renewer. All that a user may have come to nine megabytes, with the
longest names of renewers; but any number of users may name the same one as a renewer, and some may see everybody's."""
_TOKEN, _USER = AclResourceType.DELEGATION_TOKEN, AclResourceType.USER


async def handle(
    ctx: RequestContext, request: DescribeDelegationTokenRequest, *, delegation_tokens: Tokens
) -> EncodedDelegationTokens:
    """Of certain owners, or of all. Raises KafkaError, POLICY_VIOLATION if there are more than fit into an answer: a
    part of them could not be told from all of them.

    Each is encoded as it comes. As objects they take up to six times that.
    """
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

    rows, budget = EncodedItems(), Budget(MOST_BYTES)
    async for token in delegation_tokens.all():
        if is_wanted(token):
            if budget.is_spent:
                raise KafkaError(ErrorCode.POLICY_VIOLATION, "There are more delegation tokens than fit into an answer")
            row = encode_item(_described(token, delegation_tokens, ctx.api_version), ctx.api_version)
            budget.spend(len(row))
            rows.add(row)
    return EncodedDelegationTokens(tokens=rows)


def _described(token: DelegationToken, tokens: Tokens, version: int) -> DescribedDelegationToken:
    kind, name = kind_and_name(token.owner)
    row = DescribedDelegationToken(
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
    if version >= FIRST_VERSION_WITH_REQUESTERS:
        row.token_requester_principal_type, row.token_requester_principal_name = kind_and_name(token.requester)
    return row
