"""WriteShareGroupState (key 85): write changes of the state of share-partitions, for partition leaders (KIP-932)."""

from __future__ import annotations

from ....protocol.messages.write_share_group_state import WriteShareGroupStateRequest, WriteShareGroupStateResponse
from ...coordinator.share.share_coordinator import ShareCoordinator
from ..request_context import RequestContext


async def handle(
    _: RequestContext, request: WriteShareGroupStateRequest, *, share_coordinator: ShareCoordinator
) -> WriteShareGroupStateResponse:
    """Write the changes; each share-partition of the response has its own error."""
    return await share_coordinator.write_state(request)
