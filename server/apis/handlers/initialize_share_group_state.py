"""InitializeShareGroupState (key 83): create the state of share-partitions, for a group coordinator (KIP-932)."""

from __future__ import annotations

from ....protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from ...coordinator.share.share_coordinator import ShareCoordinator
from ..request_context import RequestContext


async def handle(
    _: RequestContext, request: InitializeShareGroupStateRequest, *, share_coordinator: ShareCoordinator
) -> InitializeShareGroupStateResponse:
    """Create the state; each share-partition of the response has its own error."""
    return await share_coordinator.initialize_state(request)
