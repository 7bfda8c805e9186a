"""StopReplica (key 5): the replicas that this broker stops, and of these the replicas to delete, from the controller.

v1 adds the broker epoch (KIP-380), v3 the leader epoch and the deletion flag of each partition (KIP-570).
"""

from __future__ import annotations

from ....protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from ...controller.control_requests import stop_replica_response, stop_replica_states
from ...controller.controller_request_handler import ControllerRequestHandler
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext, request: StopReplicaRequest, *, controller_request_handler: ControllerRequestHandler
) -> StopReplicaResponse:
    """Stop each replica on its own. Raise KafkaError STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH."""
    results = await controller_request_handler.stop_replicas(
        stop_replica_states(request), controller_epoch=request.controller_epoch, broker_epoch=request.broker_epoch
    )
    return await stop_replica_response(results)
