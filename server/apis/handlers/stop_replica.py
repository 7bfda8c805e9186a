"""StopReplica (key 5): the controller says which replicas this broker gives up, and which of them it deletes.

v1 brings the broker epoch (KIP-380), v3 a leader epoch for each partition and a wish to delete it (KIP-570).
"""

from __future__ import annotations

from ....protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from ...controller.control_requests import stop_replica_response, stops_of
from ..ports import ControllerOrders
from ..request_context import RequestContext


async def handle(ctx: RequestContext, request: StopReplicaRequest, *, orders: ControllerOrders) -> StopReplicaResponse:
    """Each partition on its own. Raises KafkaError STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH."""
    results = await orders.stop_replicas(
        stops_of(request), controller_epoch=request.controller_epoch, broker_epoch=request.broker_epoch
    )
    return await stop_replica_response(results)
