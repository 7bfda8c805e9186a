"""A change of a streams group: the new state in memory, its records, and the undo if they cannot be appended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...coordinator_log import CoordinatorRecord
from ..modern_group_change import ModernGroupChange, restore
from .streams_group import StreamsGroup
from .streams_group_member import StreamsGroupMember
from .streams_group_records import (
    is_same_current_assignment,
    is_same_metadata,
    new_streams_group_current_assignment_record,
    new_streams_group_current_assignment_tombstone,
    new_streams_group_member_record,
    new_streams_group_member_tombstone,
    new_streams_group_metadata_record,
    new_streams_group_target_assignment_metadata_record,
    new_streams_group_target_assignment_record,
    new_streams_group_target_assignment_tombstone,
    new_streams_group_topology_record,
)
from .streams_heartbeat import MemberTaskOffsets
from .streams_topology import StreamsTopology
from .tasks import TasksTuple


class StreamsGroupChange(ModernGroupChange[StreamsGroup, StreamsGroupMember, TasksTuple]):
    """One change of a streams group, which is applied to the object in memory immediately."""

    def __init__(self, group: StreamsGroup) -> None:
        super().__init__(group)
        self._topology = group.topology
        self._topology_value = b""
        self._configured_topology = group.configured_topology
        self._assignment_inputs = (group.validated_topology_epoch, group.last_assignment_configs)
        self._reported = (group.shutdown_request_member_id, group.endpoint_information_epoch)
        self._task_offsets: dict[str, MemberTaskOffsets | None] = {}

    def set_topology(self, topology: StreamsTopology, topology_value: bytes) -> None:
        """Set the topology of a group that has none, with the value of its record."""
        assert self.group.topology is None, "a topology does not change"
        self.group.topology, self._topology_value = topology, topology_value

    def set_task_offsets(self, member_id: str, offsets: MemberTaskOffsets) -> None:
        """Set the offsets that a member reports; they are not in the log."""
        self._task_offsets.setdefault(member_id, self.group.task_offsets.get(member_id))
        self.group.task_offsets[member_id] = offsets

    def remove_member(self, member_id: str) -> None:
        """Remove a member, its target assignment and its reported offsets."""
        # Not in StreamsGroup.remove_member: `undo` calls it for members whose offsets have not changed.
        offsets = self.group.task_offsets.pop(member_id, None)
        if offsets is not None:
            self._task_offsets.setdefault(member_id, offsets)
        super().remove_member(member_id)

    def bump_epoch_for(self, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]) -> None:
        """Increment the group epoch with the inputs of the next target assignment."""
        self.bump_epoch(metadata_hash)
        self.group.validated_topology_epoch = validated_topology_epoch
        self.group.last_assignment_configs = configs

    def set_assignment_epoch_to(self, epoch: int, timestamp_ms: int) -> None:
        """Set the epoch of the target assignment to an epoch of the group, and the time of its computation."""
        group = self.group
        assert group.assignment_epoch < epoch <= group.epoch, f"{group.group_id}: {epoch} is not an epoch to assign"
        group.assignment_epoch, group.assignment_timestamp_ms = epoch, timestamp_ms

    def records(self) -> Iterator[CoordinatorRecord]:
        """Yield the records of the change in an order that Apache Kafka can replay: deletions first."""
        group, group_id = self.group, self.group.group_id
        for member_id in self.removed_members:
            # As in Apache Kafka, each removal has three tombstones, also without a target assignment.
            yield new_streams_group_current_assignment_tombstone(group_id, member_id)
            yield new_streams_group_target_assignment_tombstone(group_id, member_id)
            yield new_streams_group_member_tombstone(group_id, member_id)
        for before, member in self.present_members:
            if before is None or not is_same_metadata(before, member):
                yield new_streams_group_member_record(group_id, member)
        if group.topology is not None and group.topology is not self._topology:
            yield new_streams_group_topology_record(group_id, self._topology_value)
        inputs = (group.validated_topology_epoch, group.last_assignment_configs)
        if (group.epoch, group.metadata_hash) != self._epochs[:2] or inputs != self._assignment_inputs:
            yield new_streams_group_metadata_record(group)
        for member_id, target in self.new_targets:
            yield new_streams_group_target_assignment_record(group_id, member_id, target)
        assignment = (group.assignment_epoch, group.assignment_timestamp_ms)
        if assignment != (self._epochs[2], self._assignment_timestamp_ms):
            yield new_streams_group_target_assignment_metadata_record(group)
        for before, member in self.present_members:
            if before is None or not is_same_current_assignment(before, member):
                yield new_streams_group_current_assignment_record(group_id, member)

    def undo(self) -> None:
        """Restore the former state of the group."""
        super().undo()
        group = self.group
        group.topology, group.configured_topology = self._topology, self._configured_topology
        group.validated_topology_epoch, group.last_assignment_configs = self._assignment_inputs
        group.shutdown_request_member_id, group.endpoint_information_epoch = self._reported
        restore(group.task_offsets, self._task_offsets)
        group.endpoint_cache.clear()
