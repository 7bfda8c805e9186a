"""AllocateProducerIds (key 67): a broker asks the controller for a block of producer ids that nobody has (KIP-730)."""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ...metadata.producer_ids import ProducerIds
from ..ports import BrokersController
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext,
    request: AllocateProducerIdsRequest,
    *,
    brokers_controller: BrokersController,
    producer_ids: ProducerIds,
) -> AllocateProducerIdsResponse:
    """Raises KafkaError NOT_CONTROLLER, BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH, COORDINATOR_LOAD_IN_PROGRESS."""
    epoch = brokers_controller.broker_epoch(request.broker_id)
    if epoch is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {request.broker_id} is not registered.")
    if epoch != request.broker_epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"Broker {request.broker_id} has another epoch.")
    block = await producer_ids.claim_block(request.broker_id)
    return AllocateProducerIdsResponse(producer_id_start=block.start, producer_id_len=len(block))
