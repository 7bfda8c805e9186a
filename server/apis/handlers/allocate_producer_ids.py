"""AllocateProducerIds (key 67): allocates a block of unused producer ids to a broker, on the controller (KIP-730)."""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ...controller.kafka_controller import KafkaController
from ...metadata.producer_id_manager import ZkProducerIdManager
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext,
    request: AllocateProducerIdsRequest,
    *,
    controller: KafkaController,
    producer_ids: ZkProducerIdManager,
) -> AllocateProducerIdsResponse:
    """Raises KafkaError NOT_CONTROLLER, BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH, COORDINATOR_LOAD_IN_PROGRESS."""
    epoch = controller.broker_epoch(request.broker_id)
    if epoch is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {request.broker_id} is not registered.")
    if epoch != request.broker_epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"The epoch of broker {request.broker_id} is stale.")
    block = await producer_ids.allocate_producer_id_block(request.broker_id)
    return AllocateProducerIdsResponse(producer_id_start=block.start, producer_id_len=len(block))
