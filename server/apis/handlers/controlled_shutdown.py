"""ControlledShutdown (key 7): moves leaderships from a broker to other replicas, before the broker stops.

v2 adds the broker epoch (KIP-380). The remaining partitions have no other in-sync replica; the broker may repeat the
request.
"""

from __future__ import annotations

from ....protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from ...controller.kafka_controller import KafkaController
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext, request: ControlledShutdownRequest, *, controller: KafkaController
) -> ControlledShutdownResponse:
    """Raises KafkaError NOT_CONTROLLER, BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH."""
    remaining = await controller.controlled_shutdown(request.broker_id, request.broker_epoch)
    return ControlledShutdownResponse(
        remaining_partitions=[RemainingPartition(topic_name=name, partition_index=index) for name, index in remaining]
    )
