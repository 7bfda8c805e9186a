"""The records of streams groups, with the same bytes as Kafka's (Kafka: StreamsCoordinatorRecordHelpers).

Lists have Kafka's order: subtopologies by id, partition numbers ascending, tags and settings by key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from .....protocol.codec import encode_versioned
from .....protocol.messages.streams_group_heartbeat import Subtopology as RequestedSubtopology
from .....protocol.messages.streams_group_heartbeat import TopicInfo as RequestedTopicInfo
from .....protocol.streams_group_records import (
    AssignedTaskIds,
    KeyValue,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
    TaskIds,
)
from .....protocol.streams_group_records import (
    CopartitionGroup as WireCopartitionGroup,
)
from .....protocol.streams_group_records import (
    Endpoint as WireEndpoint,
)
from .....protocol.streams_group_records import (
    Subtopology as WireSubtopology,
)
from .....protocol.streams_group_records import (
    TopicInfo as WireTopicInfo,
)
from ...coordinator_log import CoordinatorRecord
from .streams_group import StreamsGroup
from .streams_group_member import Endpoint, StreamsGroupMember
from .streams_topology import CopartitionGroup, InternalTopicInfo, StreamsTopology, Subtopology
from .tasks import Tasks, TasksTuple, TasksTupleWithEpochs, TasksWithEpochs

GROUP_METADATA = 17
MEMBER_METADATA = 19
TARGET_ASSIGNMENT_METADATA = 20
TARGET_ASSIGNMENT_MEMBER = 21
CURRENT_MEMBER_ASSIGNMENT = 22
TOPOLOGY = 23
VALUE_VERSION = 0


# -- the group ---------------------------------------------------------------------------------------------------------


def _group_key(group_id: str) -> bytes:
    return encode_versioned(StreamsGroupMetadataKey(group_id=group_id), GROUP_METADATA)


def new_streams_group_metadata_record(group: StreamsGroup) -> CoordinatorRecord:
    """Return the record of a group's epoch, of the hash of its topics and of the settings of its assignment."""
    configs = [KeyValue(key=key, value=value) for key, value in sorted(group.last_assignment_configs.items())]
    value = StreamsGroupMetadataValue(
        epoch=group.epoch,
        metadata_hash=group.metadata_hash,
        validated_topology_epoch=group.validated_topology_epoch,
        last_assignment_configs=configs,
        stored_description_topology_epoch=group.stored_description_epoch,
        failed_description_topology_epoch=group.failed_description_epoch,
    )
    return _group_key(group.group_id), encode_versioned(value, VALUE_VERSION)


def _topology_key(group_id: str) -> bytes:
    return encode_versioned(StreamsGroupTopologyKey(group_id=group_id), TOPOLOGY)


def new_streams_group_topology_record(group_id: str, topology_value: bytes) -> CoordinatorRecord:
    """Return the record of a group's topology, which `encode_topology` has encoded."""
    return _topology_key(group_id), topology_value


def encode_topology(topology: StreamsTopology) -> bytes:
    """Return the value of the record of a topology. With the most topics and settings it takes 30 ms."""
    subtopologies = [_to_wire(one) for one in topology.subtopologies.values()]
    value = StreamsGroupTopologyValue(epoch=topology.epoch, subtopologies=subtopologies)
    return encode_versioned(value, VALUE_VERSION)


def _to_wire(subtopology: Subtopology) -> WireSubtopology:
    return WireSubtopology(
        subtopology_id=subtopology.subtopology_id,
        source_topics=list(subtopology.source_topics),
        source_topic_regex=list(subtopology.source_topic_regex),
        state_changelog_topics=list(map(_topic_to_wire, subtopology.state_changelog_topics)),
        repartition_sink_topics=list(subtopology.repartition_sink_topics),
        repartition_source_topics=list(map(_topic_to_wire, subtopology.repartition_source_topics)),
        copartition_groups=[
            WireCopartitionGroup(
                source_topics=list(group.source_topics),
                source_topic_regex=list(group.source_topic_regex),
                repartition_source_topics=list(group.repartition_source_topics),
            )
            for group in subtopology.copartition_groups
        ],
    )


def _topic_to_wire(topic: InternalTopicInfo) -> WireTopicInfo:
    return WireTopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=[KeyValue(key=key, value=value) for key, value in topic.topic_configs],
    )


def subtopology_from_wire(read: WireSubtopology | RequestedSubtopology) -> Subtopology:
    """Return the subtopology in a record; StreamsGroupHeartbeat has the same fields."""
    return Subtopology(
        read.subtopology_id,
        tuple(read.source_topics),
        tuple(read.source_topic_regex),
        tuple(map(_topic_from_wire, read.state_changelog_topics)),
        tuple(read.repartition_sink_topics),
        tuple(map(_topic_from_wire, read.repartition_source_topics)),
        tuple(
            CopartitionGroup(
                tuple(group.source_topics), tuple(group.source_topic_regex), tuple(group.repartition_source_topics)
            )
            for group in read.copartition_groups
        ),
    )


def _topic_from_wire(read: WireTopicInfo | RequestedTopicInfo) -> InternalTopicInfo:
    configs = tuple((config.key, config.value) for config in read.topic_configs)
    return InternalTopicInfo(read.name, read.partitions, read.replication_factor, configs)


def topology_from_record(read: StreamsGroupTopologyValue) -> StreamsTopology:
    """Return the topology in a record."""
    return StreamsTopology(read.epoch, {one.subtopology_id: subtopology_from_wire(one) for one in read.subtopologies})


# -- members -----------------------------------------------------------------------------------------------------------


def _member_key(group_id: str, member_id: str) -> bytes:
    key = StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
    return encode_versioned(key, MEMBER_METADATA)


def new_streams_group_member_record(group_id: str, member: StreamsGroupMember) -> CoordinatorRecord:
    """Return the record of the values that a member's heartbeats set."""
    endpoint = member.user_endpoint
    value = StreamsGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else WireEndpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[KeyValue(key=key, value=text) for key, text in sorted(member.client_tags.items())],
    )
    return _member_key(group_id, member.member_id), encode_versioned(value, VALUE_VERSION)


def new_streams_group_member_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Return the record that deletes a member."""
    return _member_key(group_id, member_id), None


def endpoint_from_record(read: WireEndpoint | None) -> Endpoint | None:
    """Return the endpoint in a record."""
    return None if read is None else Endpoint(read.host, read.port)


def is_same_metadata(left: StreamsGroupMember, right: StreamsGroupMember) -> bool:
    """Return whether the member records of two states of a member are equal."""
    return _metadata_values(left) == _metadata_values(right)


def _metadata_values(member: StreamsGroupMember) -> tuple[object, ...]:
    return (
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.topology_epoch,
        member.process_id,
        member.user_endpoint,
        member.client_tags,
    )


# -- target assignments ------------------------------------------------------------------------------------------------


def _target_assignment_metadata_key(group_id: str) -> bytes:
    key = StreamsGroupTargetAssignmentMetadataKey(group_id=group_id)
    return encode_versioned(key, TARGET_ASSIGNMENT_METADATA)


def new_streams_group_target_assignment_metadata_record(group: StreamsGroup) -> CoordinatorRecord:
    """Return the record of the epoch of a group's target assignment and of the time of its computation."""
    value = StreamsGroupTargetAssignmentMetadataValue(
        assignment_epoch=group.assignment_epoch, assignment_timestamp=group.assignment_timestamp_ms
    )
    return _target_assignment_metadata_key(group.group_id), encode_versioned(value, VALUE_VERSION)


def _target_assignment_key(group_id: str, member_id: str) -> bytes:
    key = StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return encode_versioned(key, TARGET_ASSIGNMENT_MEMBER)


def new_streams_group_target_assignment_record(group_id: str, member_id: str, target: TasksTuple) -> CoordinatorRecord:
    """Return the record of a member's target assignment."""
    value = StreamsGroupTargetAssignmentMemberValue(
        active_tasks=_task_ids(target.active),
        standby_tasks=_task_ids(target.standby),
        warmup_tasks=_task_ids(target.warmup),
    )
    return _target_assignment_key(group_id, member_id), encode_versioned(value, VALUE_VERSION)


def new_streams_group_target_assignment_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Return the record that deletes a member's target assignment."""
    return _target_assignment_key(group_id, member_id), None


def _task_ids(tasks: Tasks) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=sorted(partitions)) for name, partitions in sorted(tasks.items())]


class TasksOfSubtopology(Protocol):
    """The tasks of one subtopology: an element of several requests and records."""

    subtopology_id: str
    partitions: list[int]


def tasks_from_record(read: Iterable[TasksOfSubtopology]) -> Tasks:
    """Return the tasks in a record or a request."""
    tasks: dict[str, frozenset[int]] = {}
    for one in read:
        if one.partitions:
            tasks[one.subtopology_id] = tasks.get(one.subtopology_id, frozenset()) | frozenset(one.partitions)
    return tasks


def target_from_record(read: StreamsGroupTargetAssignmentMemberValue) -> TasksTuple:
    """Return the target assignment in a record."""
    return TasksTuple(*map(tasks_from_record, (read.active_tasks, read.standby_tasks, read.warmup_tasks)))


# -- current assignments -----------------------------------------------------------------------------------------------


def _current_assignment_key(group_id: str, member_id: str) -> bytes:
    key = StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return encode_versioned(key, CURRENT_MEMBER_ASSIGNMENT)


def new_streams_group_current_assignment_record(group_id: str, member: StreamsGroupMember) -> CoordinatorRecord:
    """Return the record of a member's epochs, state and tasks."""
    assigned, revoking = member.assigned, member.revoking
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        active_tasks=_task_ids_with_epochs(assigned.active),
        standby_tasks=_assigned_task_ids(assigned.standby),
        warmup_tasks=_assigned_task_ids(assigned.warmup),
        active_tasks_pending_revocation=_task_ids_with_epochs(revoking.active),
        standby_tasks_pending_revocation=_assigned_task_ids(revoking.standby),
        warmup_tasks_pending_revocation=_assigned_task_ids(revoking.warmup),
    )
    return _current_assignment_key(group_id, member.member_id), encode_versioned(value, VALUE_VERSION)


def new_streams_group_current_assignment_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Return the record that deletes a member's epochs, state and tasks."""
    return _current_assignment_key(group_id, member_id), None


def _assigned_task_ids(tasks: Tasks) -> list[AssignedTaskIds]:
    return [
        AssignedTaskIds(subtopology_id=name, partitions=sorted(partitions), assignment_epochs=[])
        for name, partitions in sorted(tasks.items())
    ]


def _task_ids_with_epochs(tasks: TasksWithEpochs) -> list[AssignedTaskIds]:
    return [
        AssignedTaskIds(
            subtopology_id=name,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[partition] for partition in sorted(epochs)],
        )
        for name, epochs in sorted(tasks.items())
    ]


def _active_from_record(read: Iterable[AssignedTaskIds], member_epoch: int) -> TasksWithEpochs:
    """Return active tasks. In a record without assignment epochs they have the epoch of the member."""
    tasks: dict[str, Mapping[int, int]] = {}
    for one in read:
        epochs = one.assignment_epochs
        if epochs is None or len(epochs) != len(one.partitions):
            epochs = [member_epoch] * len(one.partitions)
        if one.partitions:
            tasks[one.subtopology_id] = dict(zip(one.partitions, epochs, strict=True))
    return tasks


def assigned_from_record(read: StreamsGroupCurrentMemberAssignmentValue) -> TasksTupleWithEpochs:
    """Return the tasks that a member has."""
    return TasksTupleWithEpochs(
        _active_from_record(read.active_tasks, read.member_epoch),
        tasks_from_record(read.standby_tasks),
        tasks_from_record(read.warmup_tasks),
    )


def revoking_from_record(read: StreamsGroupCurrentMemberAssignmentValue) -> TasksTupleWithEpochs:
    """Return the tasks that a member has to revoke."""
    return TasksTupleWithEpochs(
        _active_from_record(read.active_tasks_pending_revocation, read.member_epoch),
        tasks_from_record(read.standby_tasks_pending_revocation),
        tasks_from_record(read.warmup_tasks_pending_revocation),
    )


def is_same_current_assignment(left: StreamsGroupMember, right: StreamsGroupMember) -> bool:
    """Return whether the records of the present assignment of two states of a member are equal."""
    return (left.epoch, left.previous_epoch, left.state, left.assigned, left.revoking) == (
        right.epoch,
        right.previous_epoch,
        right.state,
        right.assigned,
        right.revoking,
    )


# -- deletion ----------------------------------------------------------------------------------------------------------


def new_streams_group_tombstones(group: StreamsGroup) -> Iterator[CoordinatorRecord]:
    """Yield the records that delete a group, in an order that Apache Kafka can replay."""
    group_id = group.group_id
    for member_id in group.members:
        yield new_streams_group_current_assignment_tombstone(group_id, member_id)
    for member_id in group.targets:
        yield new_streams_group_target_assignment_tombstone(group_id, member_id)
    yield _target_assignment_metadata_key(group_id), None
    for member_id in group.members:
        yield new_streams_group_member_tombstone(group_id, member_id)
    yield _group_key(group_id), None
    yield _topology_key(group_id), None
