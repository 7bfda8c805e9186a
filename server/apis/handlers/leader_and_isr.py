"""LeaderAndIsr (key 4): the controller says which partitions this broker leads or follows, in which epochs.

v2 brings the broker epoch (KIP-380), v5 topic ids. An order in an epoch that is known already changes nothing and is
answered with STALE_CONTROLLER_EPOCH, as by Kafka.
"""

from __future__ import annotations

from ....protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from ...controller.control_requests import leader_and_isr_response, orders_of
from ..ports import ControllerOrders
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext, request: LeaderAndIsrRequest, *, orders: ControllerOrders
) -> LeaderAndIsrResponse:
    """Each partition on its own. Raises KafkaError STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH."""
    given = await orders_of(request)
    results = await orders.leader_and_isr(
        given, controller_epoch=request.controller_epoch, broker_epoch=request.broker_epoch
    )
    return await leader_and_isr_response(ctx.api_version, given, results)
