"""DeleteShareGroupState (key 86): delete the state of share-partitions, for a group coordinator (KIP-932)."""

from __future__ import annotations

from ....protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest, DeleteShareGroupStateResponse
from ...coordinator.share.share_coordinator import ShareCoordinator
from ..request_context import RequestContext


async def handle(
    _: RequestContext, request: DeleteShareGroupStateRequest, *, share_coordinator: ShareCoordinator
) -> DeleteShareGroupStateResponse:
    """Delete the state; each share-partition of the response has its own error."""
    return await share_coordinator.delete_state(request)
