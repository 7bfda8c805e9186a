"""StreamsGroupTopologyDescriptionUpdate (key 93): store the description of a topology (KIP-1331).

Version 0, flexible from 0. Members send it when a response to StreamsGroupHeartbeat requires it.
"""

from __future__ import annotations

from ..schema import int8, int16, int32, message, string, wire


@message
class TopologyDescriptionNode:
    name: str = wire(string, "0+")
    node_type: int = wire(int8, "0+")
    source_topics: list[str] = wire([string], "0+")
    sink_topic: str | None = wire(string, "0+", null="0+", default=None)
    stores: list[str] = wire([string], "0+")
    successors: list[str] = wire([string], "0+")


@message
class TopologyDescriptionSubtopology:
    subtopology_id: str = wire(string, "0+")
    nodes: list[TopologyDescriptionNode] = wire([TopologyDescriptionNode], "0+")


@message
class TopologyDescriptionGlobalStore:
    source: TopologyDescriptionNode = wire(TopologyDescriptionNode, "0+")
    processor: TopologyDescriptionNode = wire(TopologyDescriptionNode, "0+")


@message
class TopologyDescription:
    subtopologies: list[TopologyDescriptionSubtopology] = wire([TopologyDescriptionSubtopology], "0+")
    global_stores: list[TopologyDescriptionGlobalStore] = wire([TopologyDescriptionGlobalStore], "0+")


@message(versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateRequest:
    group_id: str = wire(string, "0+")
    member_id: str = wire(string, "0+")
    topology_epoch: int = wire(int32, "0+")
    topology_description: TopologyDescription = wire(TopologyDescription, "0+")


@message(versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+", default=None)
