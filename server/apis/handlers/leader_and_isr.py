"""LeaderAndIsr (key 4): the partitions that this broker leads or follows, and their epochs, from the controller.

v2 adds the broker epoch (KIP-380), v5 topic ids. A state whose epoch is not newer changes nothing and has
STALE_CONTROLLER_EPOCH in the response, as in Kafka.
"""

from __future__ import annotations

from ....protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from ...controller.control_requests import leader_and_isr_response, leader_and_isr_states
from ...controller.controller_request_handler import ControllerRequestHandler
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext, request: LeaderAndIsrRequest, *, controller_request_handler: ControllerRequestHandler
) -> LeaderAndIsrResponse:
    """Apply the state of each partition on its own. Raise KafkaError STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH."""
    given = await leader_and_isr_states(request)
    results = await controller_request_handler.leader_and_isr(
        given, controller_epoch=request.controller_epoch, broker_epoch=request.broker_epoch
    )
    return await leader_and_isr_response(ctx.api_version, given, results)
