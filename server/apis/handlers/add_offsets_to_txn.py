"""AddOffsetsToTxn (key 25): adds the offsets of a group to a transaction (KIP-98).

The partition of `__consumer_offsets` of the group is added to the transaction. Version 2 has PRODUCER_FENCED. Producers
of KIP-890 do not send it: TxnOffsetCommit 5 adds the partition.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ....protocol.producer_identity import ProducerIdentity
from ...coordinator.group.group_coordinator import GroupCoordinator
from ...coordinator.transaction.transaction_coordinator import TransactionCoordinator
from ...coordinator.transaction.transaction_metadata import TV_0
from ..error_responses import producer_error_for_version
from ..pending_reply import PendingReply
from ..request_context import RequestContext

FIRST_VERSION_WITH_FENCING = 2


async def handle(
    ctx: RequestContext,
    request: AddOffsetsToTxnRequest,
    *,
    group_coordinator: GroupCoordinator,
    transaction_coordinator: TransactionCoordinator,
) -> AddOffsetsToTxnResponse:
    """Respond when the addition is durable. Raise KafkaError COORDINATOR_NOT_AVAILABLE without a topic for offsets."""
    await group_coordinator.group_manager.find_coordinator(request.group_id)
    reply: PendingReply[ErrorCode] = PendingReply()
    transaction_coordinator.add_partitions_with_retry(
        request.transactional_id,
        ProducerIdentity(request.producer_id, request.producer_epoch),
        frozenset({group_coordinator.group_manager.topic_partition_for(request.group_id)}),
        TV_0,
        reply,
    )
    error = producer_error_for_version(ctx.api_version, FIRST_VERSION_WITH_FENCING, await reply)
    return AddOffsetsToTxnResponse(error_code=error)
