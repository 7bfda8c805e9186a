"""StreamsGroupTopologyDescriptionUpdate (key 93): the description of a topology, for administrators (KIP-1331).

A plug-in of the broker (`group.streams.topology.description.plugin.class`) stores descriptions. Barnabas has no such
plug-in: as in Kafka without one, heartbeats never request a description, and an update gets UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)
from ...coordinator.group.streams.streams_group_manager import StreamsGroupManager
from ..request_context import RequestContext


def handle(
    ctx: RequestContext,
    request: StreamsGroupTopologyDescriptionUpdateRequest,
    *,
    streams_group_manager: StreamsGroupManager,
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    """Reject the update. Raises KafkaError UNSUPPORTED_VERSION."""
    reason = "The broker has no streams group topology description plugin configured."
    if not streams_group_manager.are_served:
        reason = "The streams group protocol is disabled."
    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, reason)
