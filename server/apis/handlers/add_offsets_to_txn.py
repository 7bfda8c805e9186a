"""AddOffsetsToTxn (key 25): offsets of a group are going to be committed in a transaction (KIP-98).

The partition of `__consumer_offsets` that the group belongs to takes part in it. Version 2 knows PRODUCER_FENCED.
Producers of KIP-890 leave it out: TxnOffsetCommit 5 says as much.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ....protocol.producer_identity import ProducerIdentity
from ...coordinator.transaction.metadata import V1
from ..ports import CommittedOffsets, Groups, ProducerTransactions
from ..request_context import RequestContext
from ..transaction_errors import known_to

FIRST_VERSION_WITH_FENCING = 2


async def handle(
    ctx: RequestContext,
    request: AddOffsetsToTxnRequest,
    *,
    committed_offsets: CommittedOffsets,
    groups: Groups,
    transactions: ProducerTransactions,
) -> None:
    """Answers when it is durable. Raises KafkaError COORDINATOR_NOT_AVAILABLE if there is no place for offsets."""
    await groups.find_coordinator(request.group_id)
    place = committed_offsets.place_of(request.group_id)

    def reply(error: ErrorCode) -> None:
        code = known_to(ctx.api_version, FIRST_VERSION_WITH_FENCING, error)
        ctx.respond(AddOffsetsToTxnResponse(error_code=code))

    transactions.add_partitions_soon(
        request.transactional_id,
        ProducerIdentity(request.producer_id, request.producer_epoch),
        frozenset({place}),
        V1,
        reply,
    )
