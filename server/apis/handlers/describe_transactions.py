"""DescribeTransactions (key 65, KIP-664): the states of transactional ids that this broker coordinates."""

from __future__ import annotations

from ....protocol.acls import AclOperation, AclResourceType
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from ....protocol.topic_partition import indexes_by_topic
from ...coordinator.transaction.transaction_coordinator import TransactionCoordinator
from ...runtime.loop_sharing import SlicedWork, Steps
from ..request_context import RequestContext
from ..response_budget import ResponseBudget

PARTITION_BYTES = 8


async def handle(
    ctx: RequestContext,
    request: DescribeTransactionsRequest,
    *,
    transaction_coordinator: TransactionCoordinator,
    sliced_work: SlicedWork,
) -> DescribeTransactionsResponse:
    """Describe each transactional id once. The response omits ids beyond its budget: clients request them again."""
    return await sliced_work.complete(_build_response(ctx, request, transaction_coordinator))


def _build_response(
    ctx: RequestContext, request: DescribeTransactionsRequest, transaction_coordinator: TransactionCoordinator
) -> Steps[DescribeTransactionsResponse]:
    response, budget = DescribeTransactionsResponse(), ResponseBudget()
    for transactional_id in dict.fromkeys(request.transactional_ids):
        try:
            if budget.is_exhausted:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the size limit of the response is reached")
            answer = _described(ctx, transactional_id, transaction_coordinator)
        except KafkaError as error:
            answer = TransactionState(error_code=error.code, transactional_id=transactional_id)
        budget.spend(
            len(transactional_id) + sum(len(t.topic) + PARTITION_BYTES * len(t.partitions) for t in answer.topics)
        )
        response.transaction_states.append(answer)
        yield
    return response


def _described(
    ctx: RequestContext, transactional_id: str, transaction_coordinator: TransactionCoordinator
) -> TransactionState:
    """Raises KafkaError TRANSACTIONAL_ID_NOT_FOUND and as `TransactionCoordinator.find`."""
    transaction = transaction_coordinator.state_manager.find_transaction(transactional_id)
    if transaction is None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "The transactional id does not exist.")
    known = transaction.metadata
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=known.state.label,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.start_ms,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        topics=[
            TopicData(topic=topic, partitions=indexes)
            for topic, indexes in indexes_by_topic(sorted(known.partitions)).items()
            if ctx.is_authorized(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic)
        ],
    )
