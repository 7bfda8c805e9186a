"""EndTxn (key 26): commit or abort a transaction (KIP-98).

It is answered when the decision is durable; markers follow. Version 2 knows PRODUCER_FENCED, 5 gives the producer a new
epoch for its next transaction (KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from ....protocol.errors import ErrorCode
from ....protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ....protocol.producer_identity import ProducerIdentity
from ....protocol.record import NO_PRODUCER_ID
from ...coordinator.transaction.metadata import V1, V2, is_exhausted
from ...coordinator.transaction.states import TransactionState
from ...metadata.producer_ids import ProducerIds
from ..ports import ProducerTransactions
from ..request_context import RequestContext
from ..transaction_errors import known_to

FIRST_VERSION_WITH_FENCING = 2
FIRST_VERSION_WITH_EPOCHS = 5


def handle(
    ctx: RequestContext, request: EndTxnRequest, *, producer_ids: ProducerIds, transactions: ProducerTransactions
) -> Coroutine[Any, Any, None] | None:
    """Decides the transaction. Raises KafkaError as `ProducerIds.next_id` if the producer's epochs are used up."""
    version = V2 if ctx.api_version >= FIRST_VERSION_WITH_EPOCHS else V1

    def ended(now: ProducerIdentity | ErrorCode) -> None:
        if isinstance(now, ErrorCode):
            ctx.respond(EndTxnResponse(error_code=known_to(ctx.api_version, FIRST_VERSION_WITH_FENCING, now)))
        else:
            ctx.respond(EndTxnResponse(producer_id=now.producer_id, producer_epoch=now.epoch))

    def end(spare: int) -> None:
        transactions.end(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            TransactionState.PREPARE_COMMIT if request.committed else TransactionState.PREPARE_ABORT,
            ended,
            client_version=version,
            spare=spare,
        )

    if version == V2 and is_exhausted(request.producer_epoch):
        return _end_the_last(end, producer_ids)
    end(NO_PRODUCER_ID)
    return None


async def _end_the_last(end: Callable[[int], None], producer_ids: ProducerIds) -> None:
    """The next transaction will be another producer's."""
    end(await producer_ids.next_id())
