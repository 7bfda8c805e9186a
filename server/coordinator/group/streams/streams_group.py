"""Kafka's StreamsGroup: topology, members, epochs, target assignment and owners of tasks. State without I/O or time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType

from .....protocol.errors import ErrorCode
from ..group import CommittedPartition, GroupType
from ..group_with_static_members import GroupWithStaticMembers
from ..modern_group import NO_EPOCH
from .streams_group_member import NO_TOPOLOGY_EPOCH, StreamsGroupMember
from .streams_heartbeat import EndpointToPartitions, MemberTaskOffsets
from .streams_topology import StreamsTopology
from .tasks import TasksTuple, TasksTupleWithEpochs, iterate_tasks
from .topics.configured_topology import ConfiguredTopology

PROTOCOL_TYPE = "streams"
NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


class StreamsGroupState(StrEnum):
    """The states of a streams group; the value is the name in StreamsGroupDescribe and ListGroups."""

    EMPTY = "Empty"
    """No members; offsets may remain."""
    NOT_READY = "NotReady"
    """Topics of the topology are missing or have the wrong number of partitions: no task is assigned."""
    ASSIGNING = "Assigning"
    """The target assignment is older than the group epoch."""
    RECONCILING = "Reconciling"
    """A member does not have its target assignment yet."""
    STABLE = "Stable"
    """Each member has its target assignment."""
    DEAD = "Dead"
    """This broker has unloaded or deleted the group: a member has to find its coordinator again."""


class StreamsGroup(GroupWithStaticMembers[StreamsGroupMember, TasksTuple]):
    """The state of a streams group. Changed by a `StreamsGroupChange`, which can undo a change that is not written.

    Invariants: an active task is assigned to, or being revoked from, at most one member; `assignment_epoch <= epoch`;
    an instance id belongs to exactly one member.
    """

    __slots__ = (
        "_active_owners",
        "_standby_owners",
        "_warmup_owners",
        "configured_topology",
        "endpoint_cache",
        "endpoint_information_epoch",
        "failed_description_epoch",
        "last_assignment_configs",
        "shutdown_request_member_id",
        "stored_description_epoch",
        "task_offsets",
        "topology",
        "validated_topology_epoch",
    )

    protocol_type = PROTOCOL_TYPE
    type = GroupType.STREAMS

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.validated_topology_epoch = NO_TOPOLOGY_EPOCH
        """The epoch of the topology if its topics are valid, else -1."""
        self.last_assignment_configs = NO_CONFIGS
        """The settings of the last assignment (Kafka's keys): a change of a setting raises the group epoch."""
        self.stored_description_epoch = NO_EPOCH
        self.failed_description_epoch = NO_EPOCH
        """Kafka stores topology descriptions with a plug-in, which Barnabas does not have. Both epochs are preserved so
        that the log can be moved back to Kafka."""
        self.topology: StreamsTopology | None = None
        self.configured_topology: ConfiguredTopology | None = None
        self.task_offsets: dict[str, MemberTaskOffsets] = {}
        """The offsets of task state, by member. They are not in the log, because members report them periodically."""
        self.shutdown_request_member_id: str | None = None
        """The member that has requested the shutdown of the application, until the group is empty."""
        self.endpoint_information_epoch = 0
        self.endpoint_cache: dict[str, EndpointToPartitions] = {}
        """The partitions of the members with endpoints, by member id; removed when their tasks or the topics change."""
        self._active_owners: dict[str, dict[int, str]] = {}
        self._standby_owners: dict[str, dict[int, Counter[str]]] = {}
        self._warmup_owners: dict[str, dict[int, Counter[str]]] = {}

    # -- state -----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> StreamsGroupState:
        """The state, computed from the epochs and all members."""
        if self.is_dead:
            return StreamsGroupState.DEAD
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        if all(member.has_reached(self.assignment_epoch) for member in self.members.values()):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    # -- members ---------------------------------------------------------------------------------------------------

    def put_member(self, member: StreamsGroupMember) -> None:
        """Add a member or replace its state."""
        former = self.members.get(member.member_id)
        if former is not None:
            self._forget(former)
            if former.assigned != member.assigned or former.user_endpoint != member.user_endpoint:
                self.endpoint_cache.pop(member.member_id, None)
        self.members[member.member_id] = member
        for tasks in (member.assigned, member.revoking):
            self._own(member, tasks)
        self.add_instance(member)

    def remove_member(self, member_id: str) -> None:
        """Remove a member and its ownership of tasks. `StreamsGroupChange` removes its reported offsets."""
        self._forget(self.members.pop(member_id))
        self.endpoint_cache.pop(member_id, None)
        if not self.members:
            self.shutdown_request_member_id = None

    def _forget(self, member: StreamsGroupMember) -> None:
        for tasks in (member.assigned, member.revoking):
            self._disown(member, tasks)
        self.remove_instance(member)

    def _own(self, member: StreamsGroupMember, tasks: TasksTupleWithEpochs) -> None:
        for name, partitions in tasks.active.items():
            # No other member owns them: `build_current_assignment` assigns free active tasks only.
            self._active_owners.setdefault(name, {}).update(dict.fromkeys(partitions, member.member_id))
        for owners, held in ((self._standby_owners, tasks.standby), (self._warmup_owners, tasks.warmup)):
            for name, partition in iterate_tasks(held):
                owners.setdefault(name, {}).setdefault(partition, Counter())[member.process_id] += 1

    def _disown(self, member: StreamsGroupMember, tasks: TasksTupleWithEpochs) -> None:
        for name, partition in iterate_tasks(tasks.active):
            owned = self._active_owners.get(name, {})
            if owned.get(partition) == member.member_id:
                del owned[partition]
        for owners, held in ((self._standby_owners, tasks.standby), (self._warmup_owners, tasks.warmup)):
            for name, partition in iterate_tasks(held):
                counts = owners[name][partition]
                counts[member.process_id] -= 1
                if not counts[member.process_id]:
                    del counts[member.process_id]
                if not counts:
                    del owners[name][partition]

    # -- owners of tasks -----------------------------------------------------------------------------------------------

    def active_task_owner(self, subtopology_id: str, partition: int) -> str | None:
        """Return the id of the member that has an active task, or has not confirmed its revocation."""
        return self._active_owners.get(subtopology_id, {}).get(partition)

    def active_task_process_id(self, subtopology_id: str, partition: int) -> str | None:
        """Return the process with the active task, None if the task is free."""
        member_id = self.active_task_owner(subtopology_id, partition)
        return None if member_id is None else self.members[member_id].process_id

    def standby_task_process_ids(self, subtopology_id: str, partition: int) -> Collection[str]:
        """Return the processes with standby tasks of this task."""
        return self._standby_owners.get(subtopology_id, {}).get(partition, ())

    def warmup_task_process_ids(self, subtopology_id: str, partition: int) -> Collection[str]:
        """Return the processes with warm-up tasks of this task."""
        return self._warmup_owners.get(subtopology_id, {}).get(partition, ())

    # -- topics --------------------------------------------------------------------------------------------------------

    @property
    def topology_epoch(self) -> int:
        """The epoch of the topology, -1 without one (Kafka: currentTopologyEpoch)."""
        return NO_TOPOLOGY_EPOCH if self.topology is None else self.topology.epoch

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """The names of the topics that the tasks of the members read."""
        if not self.members or self.topology is None:
            return frozenset()
        return frozenset(self.topology.source_topic_map)

    # -- offsets ---------------------------------------------------------------------------------------------------

    def validate_committed_partitions(
        self, member_id: str, generation: int, partitions: Iterable[CommittedPartition]
    ) -> ErrorCode:
        member = self.members.get(member_id)
        if member is None or generation == member.epoch:
            return ErrorCode.NONE
        if all(self._may_commit(member, generation, topic, partition) for topic, _, partition in partitions):
            return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH

    def _may_commit(self, member: StreamsGroupMember, generation: int, topic: str, partition: int) -> bool:
        subtopology = None if self.topology is None else self.topology.source_topic_map.get(topic)
        if subtopology is None:
            return False
        for tasks in (member.assigned, member.revoking):
            assigned_at = tasks.active.get(subtopology.subtopology_id, {}).get(partition)
            if assigned_at is not None:
                return generation >= assigned_at
        return False
