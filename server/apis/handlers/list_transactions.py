"""ListTransactions (key 66, KIP-664): the transactional ids that this broker coordinates.

Version 1 filters by how long a transaction has been open (KIP-994), 2 by a regular expression (KIP-1152). This broker
coordinates none: InitProducerId refuses transactional ids.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ...coordinator.group.consumer.regex_syntax import RegexSyntaxError, parse
from ..request_context import RequestContext

STATES = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)


def handle(ctx: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """Names the states in the filter that there are not. Raises KafkaError INVALID_REGULAR_EXPRESSION."""
    pattern = request.transactional_id_pattern
    if pattern:
        try:
            parse(pattern)
        except RegexSyntaxError as error:
            text = f"TransactionalIdPattern `{pattern}` is not a valid regular expression: {error}."
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, text) from None
    return ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in STATES]
    )
