"""A change of a share group: the new state in memory, its records, and the undo if they cannot be appended."""

from __future__ import annotations

from collections.abc import Iterator

from ...coordinator_log import CoordinatorRecord
from ..assignment import Assignment
from ..modern_group_change import ModernGroupChange
from .share_group import ShareGroup
from .share_group_member import ShareGroupMember
from .share_group_records import (
    is_same_current_assignment,
    is_same_subscription,
    new_share_group_current_assignment_record,
    new_share_group_current_assignment_tombstone,
    new_share_group_epoch_record,
    new_share_group_member_subscription_record,
    new_share_group_member_subscription_tombstone,
    new_share_group_state_partition_metadata_record,
    new_share_group_target_assignment_metadata_record,
    new_share_group_target_assignment_record,
    new_share_group_target_assignment_tombstone,
)
from .state_partition_metadata import StatePartitionMetadata


class ShareGroupChange(ModernGroupChange[ShareGroup, ShareGroupMember, Assignment]):
    """One change of a share group, with the partitions that have share state."""

    def __init__(self, group: ShareGroup) -> None:
        super().__init__(group)
        self._state_partitions = group.state_partitions
        self._initialization_check = group.initialization_check

    def set_state_partitions(self, metadata: StatePartitionMetadata) -> None:
        """Set the partitions that have share state."""
        self.group.state_partitions = metadata

    def records(self) -> Iterator[CoordinatorRecord]:
        """Yield the records of the change in Kafka's order: deletions first."""
        group, group_id, removed = self.group, self.group.group_id, self.removed_members
        for member_id in removed:
            yield new_share_group_current_assignment_tombstone(group_id, member_id)
        for member_id in self.removed_targets:
            yield new_share_group_target_assignment_tombstone(group_id, member_id)
        for member_id in removed:
            yield new_share_group_member_subscription_tombstone(group_id, member_id)
        for before, member in self.present_members:
            if before is None or not is_same_subscription(before, member):
                yield new_share_group_member_subscription_record(group_id, member)
        yield from self._group_records()
        for before, member in self.present_members:
            if before is None or not is_same_current_assignment(before, member):
                yield new_share_group_current_assignment_record(group_id, member)
        metadata = group.state_partitions
        if metadata is not None and metadata != self._state_partitions:
            yield new_share_group_state_partition_metadata_record(group_id, metadata)

    def _group_records(self) -> Iterator[CoordinatorRecord]:
        group = self.group
        epoch, metadata_hash, assignment_epoch = self._epochs
        if (epoch, metadata_hash) != (group.epoch, group.metadata_hash):
            yield new_share_group_epoch_record(group)
        for member_id, target in self.new_targets:
            yield new_share_group_target_assignment_record(group.group_id, member_id, target)
        if assignment_epoch != group.assignment_epoch:
            yield new_share_group_target_assignment_metadata_record(group)

    def undo(self) -> None:
        """Restore the former state of the group."""
        super().undo()
        self.group.state_partitions = self._state_partitions
        # A check of the change's epoch would be valid for the next change, which has the same epoch and other topics.
        self.group.initialization_check = self._initialization_check
