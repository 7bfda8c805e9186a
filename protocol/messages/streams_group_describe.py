"""StreamsGroupDescribe (key 89): state, topology and members of streams groups (KIP-1071).

Versions 0-1, flexible from 0.
   1  description of the topology (KIP-1331), name of the assignor
"""

from __future__ import annotations

from ..schema import boolean, int8, int16, int32, int64, message, string, uint16, wire


@message(versions="0-1", flexible="0+")
class StreamsGroupDescribeRequest:
    group_ids: list[str] = wire([string], "0+")
    include_authorized_operations: bool = wire(boolean, "0+")
    include_topology_description: bool = wire(boolean, "1+")


@message
class KeyValue:
    key: str = wire(string, "0+")
    value: str = wire(string, "0+")


@message
class TopicInfo:
    name: str = wire(string, "0+")
    partitions: int = wire(int32, "0+")
    replication_factor: int = wire(int16, "0+")
    topic_configs: list[KeyValue] = wire([KeyValue], "0+")


@message
class Subtopology:
    subtopology_id: str = wire(string, "0+")
    source_topics: list[str] = wire([string], "0+")
    repartition_sink_topics: list[str] = wire([string], "0+")
    state_changelog_topics: list[TopicInfo] = wire([TopicInfo], "0+")
    repartition_source_topics: list[TopicInfo] = wire([TopicInfo], "0+")


@message
class Topology:
    epoch: int = wire(int32, "0+")
    subtopologies: list[Subtopology] | None = wire([Subtopology], "0+", null="0+", default=None)


@message
class Endpoint:
    host: str = wire(string, "0+")
    port: int = wire(uint16, "0+")


@message
class TaskOffset:
    subtopology_id: str = wire(string, "0+")
    partition: int = wire(int32, "0+")
    offset: int = wire(int64, "0+")


@message
class TaskIds:
    subtopology_id: str = wire(string, "0+")
    partitions: list[int] = wire([int32], "0+")


@message
class Assignment:
    active_tasks: list[TaskIds] = wire([TaskIds], "0+")
    standby_tasks: list[TaskIds] = wire([TaskIds], "0+")
    warmup_tasks: list[TaskIds] = wire([TaskIds], "0+")


@message
class Member:
    member_id: str = wire(string, "0+")
    member_epoch: int = wire(int32, "0+")
    instance_id: str | None = wire(string, "0+", null="0+", default=None)
    rack_id: str | None = wire(string, "0+", null="0+", default=None)
    client_id: str = wire(string, "0+")
    client_host: str = wire(string, "0+")
    topology_epoch: int = wire(int32, "0+")
    process_id: str = wire(string, "0+")
    user_endpoint: Endpoint | None = wire(Endpoint, "0+", null="0+", default=None)
    client_tags: list[KeyValue] = wire([KeyValue], "0+")
    task_offsets: list[TaskOffset] = wire([TaskOffset], "0+")
    task_end_offsets: list[TaskOffset] = wire([TaskOffset], "0+")
    assignment: Assignment = wire(Assignment, "0+")
    target_assignment: Assignment = wire(Assignment, "0+")
    is_classic: bool = wire(boolean, "0+")


@message
class TopologyDescriptionNode:
    name: str = wire(string, "1+")
    node_type: int = wire(int8, "1+")
    source_topics: list[str] = wire([string], "1+")
    sink_topic: str | None = wire(string, "1+", null="1+", default=None)
    stores: list[str] = wire([string], "1+")
    successors: list[str] = wire([string], "1+")


@message
class TopologyDescriptionSubtopology:
    subtopology_id: str = wire(string, "1+")
    nodes: list[TopologyDescriptionNode] = wire([TopologyDescriptionNode], "1+")


@message
class TopologyDescriptionGlobalStore:
    source: TopologyDescriptionNode = wire(TopologyDescriptionNode, "1+")
    processor: TopologyDescriptionNode = wire(TopologyDescriptionNode, "1+")


@message
class TopologyDescription:
    subtopologies: list[TopologyDescriptionSubtopology] = wire([TopologyDescriptionSubtopology], "1+")
    global_stores: list[TopologyDescriptionGlobalStore] = wire([TopologyDescriptionGlobalStore], "1+")


@message
class DescribedGroup:
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+", default=None)
    group_id: str = wire(string, "0+")
    group_state: str = wire(string, "0+")
    group_epoch: int = wire(int32, "0+")
    assignment_epoch: int = wire(int32, "0+")
    topology: Topology | None = wire(Topology, "0+", null="0+", default=None)
    members: list[Member] = wire([Member], "0+")
    authorized_operations: int = wire(int32, "0+", default=-2_147_483_648)
    topology_description: TopologyDescription | None = wire(TopologyDescription, "1+", null="1+", default=None)
    topology_description_status: int = wire(int8, "1+")
    assignor_name: str | None = wire(string, "1+", null="1+", default=None, ignorable=True)


@message(versions="0-1", flexible="0+")
class StreamsGroupDescribeResponse:
    throttle_time_ms: int = wire(int32, "0+")
    groups: list[DescribedGroup] = wire([DescribedGroup], "0+")
