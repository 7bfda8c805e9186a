"""EndTxn (key 26): commit or abort a transaction (KIP-98).

It is answered when the decision is durable; markers follow. Version 2 knows PRODUCER_FENCED, 5 gives the producer a new
epoch for its next transaction (KIP-890).
"""

from __future__ import annotations

from ....protocol.errors import KafkaError
from ....protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ....protocol.producer_identity import ProducerIdentity
from ...coordinator.transaction.coordinator import TransactionCoordinator
from ...coordinator.transaction.metadata import V1, V2
from ..request_context import RequestContext
from ..transaction_errors import known_to

FIRST_VERSION_WITH_FENCING = 2
FIRST_VERSION_WITH_EPOCHS = 5


async def handle(
    ctx: RequestContext, request: EndTxnRequest, *, transactions: TransactionCoordinator
) -> EndTxnResponse:
    """Decides the transaction."""
    version = V2 if ctx.api_version >= FIRST_VERSION_WITH_EPOCHS else V1
    try:
        now = await transactions.end(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            is_commit=request.committed,
            client_version=version,
        )
    except KafkaError as error:
        return EndTxnResponse(error_code=known_to(ctx.api_version, FIRST_VERSION_WITH_FENCING, error.code))
    return EndTxnResponse(producer_id=now.producer_id, producer_epoch=now.epoch)
