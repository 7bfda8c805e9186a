"""DescribeTransactions (key 65, KIP-664): what this broker knows of transactional ids that it coordinates: none yet."""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ..request_context import RequestContext


def handle(ctx: RequestContext, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    """Each transactional id on its own. As InitProducerId accepts none, there is none to be found."""
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(error_code=_refusal(transactional_id), transactional_id=transactional_id)
            for transactional_id in request.transactional_ids
        ]
    )


def _refusal(transactional_id: str) -> ErrorCode:
    return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST
