"""UpdateMetadata (key 6): live brokers and partition leaders for the metadata cache, from the controller.

v5 adds the broker epoch (KIP-380), v7 topic ids. A partition with leader -2 is being deleted.
"""

from __future__ import annotations

from ....protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ...controller.control_requests import metadata_update
from ...controller.controller_request_handler import ControllerRequestHandler
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext, request: UpdateMetadataRequest, *, controller_request_handler: ControllerRequestHandler
) -> UpdateMetadataResponse:
    """Update the metadata cache. Raise KafkaError STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH."""
    await controller_request_handler.update_metadata(
        await metadata_update(request),
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
    )
    return UpdateMetadataResponse()
