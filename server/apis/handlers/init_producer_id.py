"""InitProducerId (key 22): a producer id for an idempotent or a transactional producer (KIP-98).

Without a transactional id the response is always a new id with epoch 0, even if the request has an id (v3, KIP-360).
With a transactional id it is the id of the transactional id, and earlier producers with that id are fenced. Version 4
has PRODUCER_FENCED (KIP-588), 5 TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from ....protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ....protocol.producer_identity import ProducerIdentity
from ....protocol.record import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ...coordinator.creation_limiter import ClientIdentity
from ...coordinator.transaction.transaction_coordinator import TransactionCoordinator
from ...metadata.producer_id_manager import ProducerIdManager
from ..error_responses import producer_error_for_version
from ..request_context import RequestContext

FIRST_VERSION_WITH_FENCING = 4


async def handle(
    ctx: RequestContext,
    request: InitProducerIdRequest,
    *,
    producer_ids: ProducerIdManager,
    transaction_coordinator: TransactionCoordinator,
) -> InitProducerIdResponse:
    """Allocate a producer id."""
    try:
        expected = _expected(request)
        if request.transactional_id is None:
            _check_may_be_idempotent(ctx)
            return InitProducerIdResponse(producer_id=await producer_ids.generate_producer_id(), producer_epoch=0)
        now = await transaction_coordinator.init_producer_id(
            request.transactional_id,
            request.transaction_timeout_ms,
            expected,
            ClientIdentity(f"/{ctx.client_host}", ctx.client_id or ""),
        )
    except KafkaError as error:
        code = producer_error_for_version(ctx.api_version, FIRST_VERSION_WITH_FENCING, error.code)
        return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
    return InitProducerIdResponse(producer_id=now.producer_id, producer_epoch=now.epoch)


def _check_may_be_idempotent(ctx: RequestContext) -> None:
    """Raise KafkaError for a client that may write to no topic at all (KIP-679)."""
    if not ctx.is_authorized(
        AclOperation.IDEMPOTENT_WRITE, AclResourceType.CLUSTER, CLUSTER_NAME
    ) and not ctx.is_authorized_for_any(AclOperation.WRITE, AclResourceType.TOPIC):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")


def _expected(request: InitProducerIdRequest) -> ProducerIdentity | None:
    """Return the producer id and epoch of the request. Raise KafkaError INVALID_REQUEST if only one of them is set."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "producer id and producer epoch must be set together")
    if request.producer_id == NO_PRODUCER_ID:
        return None
    return ProducerIdentity(request.producer_id, request.producer_epoch)
