"""The records of streams groups in `__consumer_offsets` (KIP-1071): types 17 and 19 to 23.

Keys and values are as in `coordinator_records`. Type 18, StreamsGroupPartitionMetadata, was never in a release.
"""

from __future__ import annotations

from .schema import int8, int16, int32, int64, message, string, uint16, wire


@message
class KeyValue:
    """A setting of a topic, a tag of a client, or a setting of the assignor."""

    key: str = wire(string, "0+")
    value: str = wire(string, "0+")


@message(versions="17")
class StreamsGroupMetadataKey:
    """Key of a streams group."""

    group_id: str = wire(string, "17+")


@message(versions="0", flexible="0+")
class StreamsGroupMetadataValue:
    """The epoch of a group, the hash of its topics' metadata, and the state of its topology.

    `validated_topology_epoch` is the epoch of the topology whose topics were found complete.
    `stored_description_topology_epoch` and `failed_description_topology_epoch` are the epochs of the topologies whose
    description the plug-in has stored (-2 if that is uncertain) or has rejected (KIP-1331). An epoch of -1 means that
    there is no such topology. `last_assignment_configs` are the settings of the last assignment.
    """

    epoch: int = wire(int32, "0+")
    metadata_hash: int = wire(int64, "0+")
    validated_topology_epoch: int = wire(int32, "0+", default=-1, tag=0)
    last_assignment_configs: list[KeyValue] | None = wire([KeyValue], "0+", null="0+", tag=1)
    stored_description_topology_epoch: int = wire(int32, "0+", default=-1, tag=2)
    failed_description_topology_epoch: int = wire(int32, "0+", default=-1, tag=3)


@message(versions="19")
class StreamsGroupMemberMetadataKey:
    """Key of a member."""

    group_id: str = wire(string, "19+")
    member_id: str = wire(string, "19+")


@message
class Endpoint:
    """The address of a member's interactive queries."""

    host: str = wire(string, "0+")
    port: int = wire(uint16, "0+")


@message(versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue:
    """The values that a member's heartbeats set."""

    instance_id: str | None = wire(string, "0+", null="0+")
    rack_id: str | None = wire(string, "0+", null="0+")
    client_id: str = wire(string, "0+")
    client_host: str = wire(string, "0+")
    rebalance_timeout_ms: int = wire(int32, "0+", default=-1)
    topology_epoch: int = wire(int32, "0+")
    process_id: str = wire(string, "0+")
    user_endpoint: Endpoint | None = wire(Endpoint, "0+", null="0+", default=None)
    client_tags: list[KeyValue] = wire([KeyValue], "0+")


@message(versions="20")
class StreamsGroupTargetAssignmentMetadataKey:
    """Key of a group's target assignment."""

    group_id: str = wire(string, "20+")


@message(versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    """The group epoch of the target assignment, and the time of its computation in ms (KIP-1263), 0 if unknown."""

    assignment_epoch: int = wire(int32, "0+")
    assignment_timestamp: int = wire(int64, "0+", tag=0, ignorable=True)


@message(versions="21")
class StreamsGroupTargetAssignmentMemberKey:
    """Key of a member's target assignment."""

    group_id: str = wire(string, "21+")
    member_id: str = wire(string, "21+")


@message
class TaskIds:
    """Tasks of one subtopology."""

    subtopology_id: str = wire(string, "0+")
    partitions: list[int] = wire([int32], "0+")


@message(versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    """The member's target, to be assigned after other members have revoked it."""

    active_tasks: list[TaskIds] = wire([TaskIds], "0+")
    standby_tasks: list[TaskIds] = wire([TaskIds], "0+")
    warmup_tasks: list[TaskIds] = wire([TaskIds], "0+")


@message(versions="22")
class StreamsGroupCurrentMemberAssignmentKey:
    """Key of a member's present assignment."""

    group_id: str = wire(string, "22+")
    member_id: str = wire(string, "22+")


@message
class AssignedTaskIds:
    """Present tasks of one subtopology (Kafka: TaskIds).

    `assignment_epochs` has the member epoch in which each partition was assigned, for active tasks only; it is empty or
    null in other records.
    """

    subtopology_id: str = wire(string, "0+")
    partitions: list[int] = wire([int32], "0+")
    assignment_epochs: list[int] | None = wire([int32], "0+", null="0+", tag=0)


@message(versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue:
    """The member's present tasks, and its progress towards the target."""

    member_epoch: int = wire(int32, "0+")
    previous_member_epoch: int = wire(int32, "0+")
    state: int = wire(int8, "0+")
    active_tasks: list[AssignedTaskIds] = wire([AssignedTaskIds], "0+")
    standby_tasks: list[AssignedTaskIds] = wire([AssignedTaskIds], "0+")
    warmup_tasks: list[AssignedTaskIds] = wire([AssignedTaskIds], "0+")
    active_tasks_pending_revocation: list[AssignedTaskIds] = wire([AssignedTaskIds], "0+")
    standby_tasks_pending_revocation: list[AssignedTaskIds] = wire([AssignedTaskIds], "0+")
    warmup_tasks_pending_revocation: list[AssignedTaskIds] = wire([AssignedTaskIds], "0+")


@message(versions="23")
class StreamsGroupTopologyKey:
    """Key of a group's topology."""

    group_id: str = wire(string, "23+")


@message
class TopicInfo:
    """An internal topic. `partitions` is 0 if the number of partitions follows from other topics, `replication_factor`
    is 0 for the broker's default.
    """

    name: str = wire(string, "0+")
    partitions: int = wire(int32, "0+")
    replication_factor: int = wire(int16, "0+")
    topic_configs: list[KeyValue] = wire([KeyValue], "0+")


@message
class CopartitionGroup:
    """Topics with the same number of partitions, as positions in the lists of the subtopology."""

    source_topics: list[int] = wire([int16], "0+")
    source_topic_regex: list[int] = wire([int16], "0+")
    repartition_source_topics: list[int] = wire([int16], "0+")


@message
class Subtopology:
    """A part of a topology: the topics that its tasks read and write, and the changelogs of its stores."""

    subtopology_id: str = wire(string, "0+")
    source_topics: list[str] = wire([string], "0+")
    source_topic_regex: list[str] = wire([string], "0+")
    state_changelog_topics: list[TopicInfo] = wire([TopicInfo], "0+")
    repartition_sink_topics: list[str] = wire([string], "0+")
    repartition_source_topics: list[TopicInfo] = wire([TopicInfo], "0+")
    copartition_groups: list[CopartitionGroup] = wire([CopartitionGroup], "0+")


@message(versions="0", flexible="0+")
class StreamsGroupTopologyValue:
    """The topology of a group's members."""

    epoch: int = wire(int32, "0+")
    subtopologies: list[Subtopology] = wire([Subtopology], "0+")
