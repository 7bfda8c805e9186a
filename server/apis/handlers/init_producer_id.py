"""InitProducerId (key 22): an id for a producer that wants its retries recognised, or its transactions kept (KIP-98).

Without a transactional id the answer is always a fresh id with epoch 0, also when the producer presents the one it had
(v3, KIP-360). With one it is the id that belongs to it, and whoever had it before is fenced. Version 4 knows
PRODUCER_FENCED (KIP-588), 5 TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from ....protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ....protocol.producer_identity import ProducerIdentity
from ....protocol.record import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ...coordinator.allowance import Maker
from ...metadata.producer_ids import ProducerIds
from ..ports import ProducerTransactions
from ..request_context import RequestContext
from ..transaction_errors import known_to

FIRST_VERSION_WITH_FENCING = 4


async def handle(
    ctx: RequestContext,
    request: InitProducerIdRequest,
    *,
    producer_ids: ProducerIds,
    transactions: ProducerTransactions,
) -> InitProducerIdResponse:
    """Hands out a producer id."""
    try:
        expected = _expected(request)
        if request.transactional_id is None:
            _check_may_be_idempotent(ctx)
            return InitProducerIdResponse(producer_id=await producer_ids.next_id(), producer_epoch=0)
        now = await transactions.init_producer_id(
            request.transactional_id,
            request.transaction_timeout_ms,
            expected,
            Maker(f"/{ctx.client_host}", ctx.client_id or ""),
        )
    except KafkaError as error:
        code = known_to(ctx.api_version, FIRST_VERSION_WITH_FENCING, error.code)
        return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
    return InitProducerIdResponse(producer_id=now.producer_id, producer_epoch=now.epoch)


def _check_may_be_idempotent(ctx: RequestContext) -> None:
    """Who may write to any topic may do it with retries that are recognised (KIP-679). Raises KafkaError."""
    if not ctx.may(AclOperation.IDEMPOTENT_WRITE, AclResourceType.CLUSTER, CLUSTER_NAME) and not ctx.may_some(
        AclOperation.WRITE, AclResourceType.TOPIC
    ):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")


def _expected(request: InitProducerIdRequest) -> ProducerIdentity | None:
    """Who the producer says it is. Raises KafkaError INVALID_REQUEST for half an answer."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer id needs an epoch, and an epoch a producer id")
    if request.producer_id == NO_PRODUCER_ID:
        return None
    return ProducerIdentity(request.producer_id, request.producer_epoch)
