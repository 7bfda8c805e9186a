"""DescribeTransactions (key 65, KIP-664): what this broker knows of transactional ids that it coordinates."""

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
from ...runtime.turns import Steps
from ..answer_budget import Budget
from ..ports import ProducerTransactions
from ..request_context import RequestContext

PARTITION_BYTES = 8


def handle(
    ctx: RequestContext, request: DescribeTransactionsRequest, *, transactions: ProducerTransactions
) -> Steps[DescribeTransactionsResponse]:
    """Each transactional id once, on its own. Those without room in the answer are put off: clients ask again."""
    response, budget = DescribeTransactionsResponse(), Budget()
    for transactional_id in dict.fromkeys(request.transactional_ids):
        try:
            if budget.is_spent:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the answer is full")
            answer = _described(ctx, transactional_id, transactions)
        except KafkaError as error:
            answer = TransactionState(error_code=error.code, transactional_id=transactional_id)
        budget.spend(
            len(transactional_id) + sum(len(t.topic) + PARTITION_BYTES * len(t.partitions) for t in answer.topics)
        )
        response.transaction_states.append(answer)
        yield
    return response


def _described(ctx: RequestContext, transactional_id: str, transactions: ProducerTransactions) -> TransactionState:
    """Raises KafkaError TRANSACTIONAL_ID_NOT_FOUND and as `ProducerTransactions.find`."""
    transaction = transactions.find(transactional_id)
    if transaction is None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "There is no such transactional id.")
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
            if ctx.may(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic)
        ],
    )
