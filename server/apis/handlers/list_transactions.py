"""ListTransactions (key 66, KIP-664): the transactional ids that this broker coordinates.

Version 1 filters by how long a transaction has been open (KIP-994), 2 by a regular expression (KIP-1152).
"""

from __future__ import annotations

from collections.abc import Callable

from ....protocol.acls import AclOperation, AclResourceType
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from ...coordinator.transaction.transaction_coordinator import TransactionCoordinator
from ...coordinator.transaction.transaction_metadata import LABELS, TransactionEntry
from ...patterns.linear_pattern import LinearPattern
from ...patterns.regex_syntax import RegexSyntaxError
from ...runtime.loop_sharing import CountBudget
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext,
    request: ListTransactionsRequest,
    *,
    now_ms: Callable[[], int],
    transaction_coordinator: TransactionCoordinator,
) -> ListTransactionsResponse:
    """List the transactions that match the filters, and the unknown states in the filter.

    Raises KafkaError INVALID_REGULAR_EXPRESSION.
    """
    pattern = _pattern(request.transactional_id_pattern)
    unknown = [name for name in request.state_filters if name not in LABELS.values()]
    if transaction_coordinator.state_manager.is_loading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    states, producers = set(request.state_filters), set(request.producer_id_filters)
    since_ms, listed, budget = now_ms() - request.duration_filter, [], CountBudget()

    def is_wanted(transaction: TransactionEntry) -> bool:
        known = transaction.metadata
        return (
            (not producers or known.producer_id in producers)
            and (not states or known.state.label in states)
            and (request.duration_filter < 0 or known.start_ms < since_ms)
            and (pattern is None or pattern.matches(transaction.transactional_id))
            and ctx.is_authorized(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, transaction.transactional_id)
        )

    try:
        for transaction in transaction_coordinator.state_manager.transactions:
            if is_wanted(transaction):
                listed.append(
                    TransactionState(
                        transactional_id=transaction.transactional_id,
                        producer_id=transaction.metadata.producer_id,
                        transaction_state=transaction.metadata.state.label,
                    )
                )
            await budget.step()
    except RegexSyntaxError as error:
        raise _invalid(request.transactional_id_pattern, error) from None
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed)


def _pattern(text: str | None) -> LinearPattern | None:
    """Raises KafkaError INVALID_REGULAR_EXPRESSION."""
    try:
        return LinearPattern(text) if text else None
    except RegexSyntaxError as error:
        raise _invalid(text, error) from None


def _invalid(text: str | None, error: RegexSyntaxError) -> KafkaError:
    reason = f"TransactionalIdPattern `{text}` is not a valid regular expression: {error}."
    return KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, reason)
