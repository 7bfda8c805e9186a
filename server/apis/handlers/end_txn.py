"""EndTxn (key 26): commit or abort a transaction (KIP-98).

The response is sent when the decision is durable; the markers are written afterwards. Version 2 has PRODUCER_FENCED, 5
returns a new epoch for the next transaction of the producer (KIP-890).
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ....protocol.producer_identity import ProducerIdentity
from ....protocol.record import NO_PRODUCER_ID
from ...coordinator.transaction.transaction_coordinator import TransactionCoordinator
from ...coordinator.transaction.transaction_metadata import TV_0, TV_2, TransactionState, is_exhausted
from ...metadata.producer_id_manager import ProducerIdManager
from ...runtime.loop_sharing import next_turn
from ..error_responses import producer_error_for_version
from ..pending_reply import PendingReply
from ..request_context import RequestContext

FIRST_VERSION_WITH_FENCING = 2
FIRST_VERSION_WITH_EPOCHS = 5


async def handle(
    ctx: RequestContext,
    request: EndTxnRequest,
    *,
    producer_ids: ProducerIdManager,
    transaction_coordinator: TransactionCoordinator,
) -> EndTxnResponse:
    """End the transaction. Raise the KafkaError of `generate_producer_id` if the epochs are used up."""
    version = TV_2 if ctx.api_version >= FIRST_VERSION_WITH_EPOCHS else TV_0
    next_producer_id = NO_PRODUCER_ID
    if version == TV_2 and is_exhausted(request.producer_epoch):
        # The next transaction gets another producer id. A new block of ids is requested with a timeout, which needs a
        # task: see `EAGER` in `kafka_apis.py`.
        await next_turn()
        next_producer_id = await producer_ids.generate_producer_id()
    reply: PendingReply[ProducerIdentity | ErrorCode] = PendingReply()
    transaction_coordinator.end_transaction(
        request.transactional_id,
        ProducerIdentity(request.producer_id, request.producer_epoch),
        TransactionState.PREPARE_COMMIT if request.committed else TransactionState.PREPARE_ABORT,
        reply,
        client_version=version,
        spare=next_producer_id,
    )
    identity = await reply
    if isinstance(identity, ErrorCode):
        error = producer_error_for_version(ctx.api_version, FIRST_VERSION_WITH_FENCING, identity)
        return EndTxnResponse(error_code=error)
    return EndTxnResponse(producer_id=identity.producer_id, producer_epoch=identity.epoch)
