"""ReadShareGroupState (key 84): read the state of share-partitions, for partition leaders (KIP-932)."""

from __future__ import annotations

from ....protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse
from ...coordinator.share.share_coordinator import ShareCoordinator
from ..request_context import RequestContext


async def handle(
    _: RequestContext, request: ReadShareGroupStateRequest, *, share_coordinator: ShareCoordinator
) -> ReadShareGroupStateResponse:
    """Return the state; each share-partition of the response has its own error."""
    return await share_coordinator.read_state(request)
