"""ReadShareGroupStateSummary (key 87): read start offsets of share-partitions, for a group coordinator (KIP-932)."""

from __future__ import annotations

from ....protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from ...coordinator.share.share_coordinator import ShareCoordinator
from ..request_context import RequestContext


async def handle(
    _: RequestContext, request: ReadShareGroupStateSummaryRequest, *, share_coordinator: ShareCoordinator
) -> ReadShareGroupStateSummaryResponse:
    """Return the start offsets; each share-partition of the response has its own error."""
    return await share_coordinator.read_state_summary(request)
