"""Streams groups (KIP-1071): state, topology, and the tasks of their members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum
from typing import NamedTuple

from ...protocol.apis import ApiKey
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    StreamsGroupDescribeRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    TopologyDescription,
    TopologyDescriptionNode,
)
from ...protocol.topic_partition import TopicPartition
from ..connection import BrokerConnection
from ..errors import code_of

STREAMS = "streams"
"""The type of streams groups in listings."""

FIRST_DESCRIBE_WITH_TOPOLOGY_DESCRIPTION = 1


class StreamsTask(NamedTuple):
    """One task: a subtopology and a partition number of its source topics."""

    subtopology_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology_id}_{self.partition}"


class StreamsTasks(NamedTuple):
    """The tasks of one member, sorted. Warm-up tasks restore state before they become active tasks."""

    active: tuple[StreamsTask, ...]
    standby: tuple[StreamsTask, ...]
    warmup: tuple[StreamsTask, ...]


class StreamsMemberDescription(NamedTuple):
    """One member of a streams group, which is one thread of a process.

    `user_endpoint` is the `application.server` of its process as `host:port`. `task_offsets` and `task_end_offsets` are
    sums of the changelog offsets of a task, as the member last reported them.
    """

    member_id: str
    member_epoch: int
    group_instance_id: str | None
    rack_id: str | None
    client_id: str
    host: str
    topology_epoch: int
    process_id: str
    user_endpoint: str | None
    client_tags: Mapping[str, str]
    task_offsets: Mapping[StreamsTask, int]
    task_end_offsets: Mapping[StreamsTask, int]
    assignment: StreamsTasks
    target_assignment: StreamsTasks
    is_classic: bool


class InternalTopic(NamedTuple):
    """A repartition or changelog topic. `partitions` and `replication_factor` are 0 while the coordinator has not
    determined them.
    """

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


class StreamsSubtopology(NamedTuple):
    """One subtopology: the topics that connect it with the other subtopologies, and the topics of its state."""

    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: tuple[InternalTopic, ...]
    state_changelog_topics: tuple[InternalTopic, ...]


class TopologyDescriptionStatus(IntEnum):
    """The status of a topology description (KIP-1331)."""

    NOT_REQUESTED = 0
    NOT_STORED = 1
    ERROR = 2
    AVAILABLE = 3


class TopologyNodeType(Enum):
    """The type of a node of a topology description."""

    SOURCE = 1
    PROCESSOR = 2
    SINK = 3


class TopologyNode(NamedTuple):
    """A node of a topology description. `sink_topic` is None if the application selects the topic for each record."""

    name: str
    type: TopologyNodeType
    source_topics: tuple[str, ...]
    sink_topic: str | None
    stores: tuple[str, ...]
    successors: tuple[str, ...]


class StreamsTopologyDescription(NamedTuple):
    """The nodes of each subtopology, and the source and the processor of each global store (KIP-1331)."""

    subtopologies: Mapping[str, tuple[TopologyNode, ...]]
    global_stores: tuple[tuple[TopologyNode, TopologyNode], ...]


class StreamsGroupDescription(NamedTuple):
    """One streams group, after Kafka's `StreamsGroupDescription`; `coordinator` is the address of its coordinator.

    `assignor` is None, and `topology_description_status` is NOT_REQUESTED, before version 1 of StreamsGroupDescribe
    (Kafka 4.4).
    """

    group_id: str
    state: str
    group_epoch: int
    target_assignment_epoch: int
    topology_epoch: int
    assignor: str | None
    coordinator: str
    subtopologies: tuple[StreamsSubtopology, ...]
    members: tuple[StreamsMemberDescription, ...]
    topology_description: StreamsTopologyDescription | None
    topology_description_status: TopologyDescriptionStatus

    def input_topics(self) -> list[str]:
        """Return the names of the source topics of all subtopologies, without repartition topics."""
        return sorted({name for one in self.subtopologies for name in one.source_topics})

    def internal_topics(self) -> list[str]:
        """Return the names of all repartition and changelog topics."""
        return sorted(
            {
                topic.name
                for one in self.subtopologies
                for topic in (*one.repartition_source_topics, *one.state_changelog_topics)
            }
        )

    def owners(self) -> dict[TopicPartition, StreamsMemberDescription]:
        """Return the member that has the active task of each partition.

        A subtopology has as many tasks as its largest source topic has partitions. Therefore the result can contain
        partitions that a smaller source topic does not have.
        """
        sources = {
            one.subtopology_id: (*one.source_topics, *(topic.name for topic in one.repartition_source_topics))
            for one in self.subtopologies
        }
        return {
            TopicPartition(topic, task.partition): member
            for member in self.members
            for task in member.assignment.active
            for topic in sources.get(task.subtopology_id, ())
        }


async def describe_streams_groups_on(
    connection: BrokerConnection, group_ids: list[str], *, include_topology_description: bool = False
) -> dict[str, StreamsGroupDescription | KafkaError]:
    """Describe streams groups of this coordinator."""
    lowest = FIRST_DESCRIBE_WITH_TOPOLOGY_DESCRIPTION if include_topology_description else 0
    version = connection.version_for(ApiKey.STREAMS_GROUP_DESCRIBE, lowest=lowest)
    request = StreamsGroupDescribeRequest(
        group_ids=group_ids, include_topology_description=include_topology_description
    )
    response = await connection.send(request, version)
    return {group.group_id: _description(group, connection) for group in response.groups}


def _description(group: DescribedGroup, connection: BrokerConnection) -> StreamsGroupDescription | KafkaError:
    if group.error_code != ErrorCode.NONE:
        return KafkaError(code_of(group.error_code), group.error_message or f"group {group.group_id!r}")
    topology = group.topology
    try:
        status = TopologyDescriptionStatus(group.topology_description_status)
        nodes = _topology_description(group.topology_description) if group.topology_description is not None else None
    except ValueError as error:
        text = f"group {group.group_id!r}: invalid topology description: {error}"
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
    return StreamsGroupDescription(
        group.group_id,
        group.group_state,
        group.group_epoch,
        group.assignment_epoch,
        topology.epoch if topology is not None else -1,
        group.assignor_name,
        connection.address,
        tuple(map(_subtopology, (topology.subtopologies or ()) if topology is not None else ())),
        tuple(_member(member) for member in sorted(group.members, key=lambda member: member.member_id)),
        nodes,
        status,
    )


def _subtopology(one: Subtopology) -> StreamsSubtopology:
    return StreamsSubtopology(
        one.subtopology_id,
        tuple(sorted(one.source_topics)),
        tuple(sorted(one.repartition_sink_topics)),
        _internal_topics(one.repartition_source_topics),
        _internal_topics(one.state_changelog_topics),
    )


def _internal_topics(topics: Iterable[TopicInfo]) -> tuple[InternalTopic, ...]:
    return tuple(
        InternalTopic(
            topic.name, topic.partitions, topic.replication_factor, {c.key: c.value for c in topic.topic_configs}
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    )


def _member(member: Member) -> StreamsMemberDescription:
    endpoint = member.user_endpoint
    return StreamsMemberDescription(
        member.member_id,
        member.member_epoch,
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.topology_epoch,
        member.process_id,
        f"{endpoint.host}:{endpoint.port}" if endpoint is not None else None,
        {tag.key: tag.value for tag in member.client_tags},
        _task_offsets(member.task_offsets),
        _task_offsets(member.task_end_offsets),
        _tasks(member.assignment),
        _tasks(member.target_assignment),
        member.is_classic,
    )


def _tasks(assignment: Assignment) -> StreamsTasks:
    return StreamsTasks(
        _task_ids(assignment.active_tasks), _task_ids(assignment.standby_tasks), _task_ids(assignment.warmup_tasks)
    )


def _task_ids(tasks: Iterable[TaskIds]) -> tuple[StreamsTask, ...]:
    return tuple(sorted(StreamsTask(one.subtopology_id, partition) for one in tasks for partition in one.partitions))


def _task_offsets(offsets: Iterable[TaskOffset]) -> dict[StreamsTask, int]:
    return {StreamsTask(one.subtopology_id, one.partition): one.offset for one in offsets}


def _topology_description(description: TopologyDescription) -> StreamsTopologyDescription:
    return StreamsTopologyDescription(
        {one.subtopology_id: tuple(map(_node, one.nodes)) for one in description.subtopologies},
        tuple((_node(one.source), _node(one.processor)) for one in description.global_stores),
    )


def _node(node: TopologyDescriptionNode) -> TopologyNode:
    return TopologyNode(
        node.name,
        TopologyNodeType(node.node_type),
        tuple(node.source_topics),
        node.sink_topic,
        tuple(node.stores),
        tuple(node.successors),
    )
