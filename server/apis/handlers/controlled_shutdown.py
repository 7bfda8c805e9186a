"""ControlledShutdown (key 7): a broker asks the controller to have others lead what it leads, before it stops.

v2 brings the broker epoch (KIP-380). What remains has no other replica in sync; the broker may ask again.
"""

from __future__ import annotations

from ....protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from ..ports import BrokersController
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext, request: ControlledShutdownRequest, *, brokers_controller: BrokersController
) -> ControlledShutdownResponse:
    """Raises KafkaError NOT_CONTROLLER, BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH."""
    remaining = await brokers_controller.controlled_shutdown(request.broker_id, request.broker_epoch)
    return ControlledShutdownResponse(
        remaining_partitions=[RemainingPartition(topic_name=name, partition_index=index) for name, index in remaining]
    )
