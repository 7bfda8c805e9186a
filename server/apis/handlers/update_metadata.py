"""UpdateMetadata (key 6): the controller says who is alive and who leads what, which is what clients are told here.

v5 brings the broker epoch (KIP-380), v7 topic ids. A partition led by -2 is being deleted.
"""

from __future__ import annotations

from ....protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ...controller.control_requests import update_of
from ..ports import ControllerOrders
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext, request: UpdateMetadataRequest, *, orders: ControllerOrders
) -> UpdateMetadataResponse:
    """Believes all of it. Raises KafkaError STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH."""
    await orders.update_metadata(
        await update_of(request),
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
    )
    return UpdateMetadataResponse()
