"""StreamsGroupHeartbeat (key 88): membership in a streams group (KIP-1071).

Versions 0-1, flexible from 0.
   1  acceptable recovery lag of 64 bits, request for a description of the topology (KIP-1331),
      statuses ASSIGNMENT_DELAYED and MISSING_CLIENT_TAGS
"""

from __future__ import annotations

from ..schema import boolean, int8, int16, int32, int64, message, string, uint16, wire


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
class CopartitionGroup:
    source_topics: list[int] = wire([int16], "0+")
    source_topic_regex: list[int] = wire([int16], "0+")
    repartition_source_topics: list[int] = wire([int16], "0+")


@message
class Subtopology:
    subtopology_id: str = wire(string, "0+")
    source_topics: list[str] = wire([string], "0+")
    source_topic_regex: list[str] = wire([string], "0+")
    state_changelog_topics: list[TopicInfo] = wire([TopicInfo], "0+")
    repartition_sink_topics: list[str] = wire([string], "0+")
    repartition_source_topics: list[TopicInfo] = wire([TopicInfo], "0+")
    copartition_groups: list[CopartitionGroup] = wire([CopartitionGroup], "0+")


@message
class Topology:
    epoch: int = wire(int32, "0+")
    subtopologies: list[Subtopology] = wire([Subtopology], "0+")


@message
class TaskIds:
    subtopology_id: str = wire(string, "0+")
    partitions: list[int] = wire([int32], "0+")


@message
class Endpoint:
    host: str = wire(string, "0+")
    port: int = wire(uint16, "0+")


@message
class TaskOffset:
    subtopology_id: str = wire(string, "0+")
    partition: int = wire(int32, "0+")
    offset: int = wire(int64, "0+")


@message(versions="0-1", flexible="0+")
class StreamsGroupHeartbeatRequest:
    group_id: str = wire(string, "0+")
    member_id: str = wire(string, "0+")
    member_epoch: int = wire(int32, "0+")
    endpoint_information_epoch: int = wire(int32, "0+")
    instance_id: str | None = wire(string, "0+", null="0+", default=None)
    rack_id: str | None = wire(string, "0+", null="0+", default=None)
    rebalance_timeout_ms: int = wire(int32, "0+", default=-1)
    topology: Topology | None = wire(Topology, "0+", null="0+", default=None)
    active_tasks: list[TaskIds] | None = wire([TaskIds], "0+", null="0+", default=None)
    standby_tasks: list[TaskIds] | None = wire([TaskIds], "0+", null="0+", default=None)
    warmup_tasks: list[TaskIds] | None = wire([TaskIds], "0+", null="0+", default=None)
    process_id: str | None = wire(string, "0+", null="0+", default=None)
    user_endpoint: Endpoint | None = wire(Endpoint, "0+", null="0+", default=None)
    client_tags: list[KeyValue] | None = wire([KeyValue], "0+", null="0+", default=None)
    task_offsets: list[TaskOffset] | None = wire([TaskOffset], "0+", null="0+", default=None)
    task_end_offsets: list[TaskOffset] | None = wire([TaskOffset], "0+", null="0+", default=None)
    shutdown_application: bool = wire(boolean, "0+")


@message
class Status:
    status_code: int = wire(int8, "0+")
    status_detail: str = wire(string, "0+")


@message
class TopicPartition:
    topic: str = wire(string, "0+")
    partitions: list[int] = wire([int32], "0+")


@message
class EndpointToPartitions:
    user_endpoint: Endpoint = wire(Endpoint, "0+")
    active_partitions: list[TopicPartition] = wire([TopicPartition], "0+")
    standby_partitions: list[TopicPartition] = wire([TopicPartition], "0+")


@message(versions="0-1", flexible="0+")
class StreamsGroupHeartbeatResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+", default=None)
    member_id: str = wire(string, "0+")
    member_epoch: int = wire(int32, "0+")
    heartbeat_interval_ms: int = wire(int32, "0+")
    acceptable_recovery_lag_legacy: int = wire(int32, "0")
    task_offset_interval_ms: int = wire(int32, "0+")
    acceptable_recovery_lag: int = wire(int64, "1+", default=-1, ignorable=True)
    status: list[Status] | None = wire([Status], "0+", null="0+")
    active_tasks: list[TaskIds] | None = wire([TaskIds], "0+", null="0+", default=None)
    standby_tasks: list[TaskIds] | None = wire([TaskIds], "0+", null="0+", default=None)
    warmup_tasks: list[TaskIds] | None = wire([TaskIds], "0+", null="0+", default=None)
    topology_description_required: bool = wire(boolean, "1+")
    endpoint_information_epoch: int = wire(int32, "0+")
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = wire(
        [EndpointToPartitions], "0+", null="0+", default=None
    )
