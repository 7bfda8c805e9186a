"""A change of a consumer group: the new state in memory, its records, and the undo if they cannot be appended."""

from __future__ import annotations

from collections.abc import Iterator

from ..coordinator_log import CoordinatorRecord
from .assignment import Assignment
from .consumer_group import ConsumerGroup, ResolvedRegularExpression
from .consumer_group_member import ConsumerGroupMember
from .group_records import (
    is_same_current_assignment,
    is_same_subscription,
    new_consumer_group_current_assignment_record,
    new_consumer_group_current_assignment_tombstone,
    new_consumer_group_epoch_record,
    new_consumer_group_member_subscription_record,
    new_consumer_group_member_subscription_tombstone,
    new_consumer_group_regular_expression_record,
    new_consumer_group_subscription_metadata_tombstone,
    new_consumer_group_target_assignment_epoch_record,
    new_consumer_group_target_assignment_record,
    new_consumer_group_target_assignment_tombstone,
)
from .modern_group import FIRST_EPOCH
from .modern_group_change import ModernGroupChange, restore


class ConsumerGroupChange(ModernGroupChange[ConsumerGroup, ConsumerGroupMember, Assignment]):
    """One change of a consumer group, with the results of its regular expressions."""

    def __init__(self, group: ConsumerGroup) -> None:
        super().__init__(group)
        self._regexes: dict[str, ResolvedRegularExpression | None] = {}
        self._had_partition_metadata = group.has_partition_metadata
        self._resolved = (group.regexes_version, group.regexes_resolved_ms)
        self._is_new = group.epoch == FIRST_EPOCH and not group.members

    def set_regex(self, regex: str, resolved: ResolvedRegularExpression | None) -> None:
        """Set the topics that match a regular expression."""
        regexes = self.group.regexes
        self._regexes.setdefault(regex, regexes.get(regex))
        if resolved is None:
            regexes.pop(regex, None)
        else:
            regexes[regex] = resolved

    def bump_epoch(self, metadata_hash: int) -> None:
        """Increment the group epoch, so that the next heartbeat computes a target assignment."""
        super().bump_epoch(metadata_hash)
        self.group.has_partition_metadata = False

    def records(self) -> Iterator[CoordinatorRecord]:
        """Yield the records of the change in an order that Apache Kafka can replay: deletions first."""
        group_id, removed = self.group.group_id, self.removed_members
        for member_id in removed:
            yield new_consumer_group_current_assignment_tombstone(group_id, member_id)
        for member_id in self.removed_targets:
            yield new_consumer_group_target_assignment_tombstone(group_id, member_id)
        for member_id in removed:
            yield new_consumer_group_member_subscription_tombstone(group_id, member_id)
        for before, member in self.present_members:
            if before is None or not is_same_subscription(before, member):
                yield new_consumer_group_member_subscription_record(group_id, member)
        yield from self._group_records()
        for before, member in self.present_members:
            if before is None or not is_same_current_assignment(before, member):
                yield new_consumer_group_current_assignment_record(group_id, member)

    def _group_records(self) -> Iterator[CoordinatorRecord]:
        group, group_id = self.group, self.group.group_id
        epoch, metadata_hash, assignment_epoch = self._epochs
        for regex, former_result in self._regexes.items():
            result = group.regexes.get(regex)
            if result != former_result:
                yield new_consumer_group_regular_expression_record(group_id, regex, result)
        if self._had_partition_metadata and not group.has_partition_metadata:
            yield new_consumer_group_subscription_metadata_tombstone(group_id)
        if (epoch, metadata_hash) != (group.epoch, group.metadata_hash) or self._is_new:
            yield new_consumer_group_epoch_record(group)
        for member_id, target in self.new_targets:
            yield new_consumer_group_target_assignment_record(group_id, member_id, target)
        assignment = (group.assignment_epoch, group.assignment_timestamp_ms)
        if (assignment_epoch, self._assignment_timestamp_ms) != assignment:
            yield new_consumer_group_target_assignment_epoch_record(group)

    def undo(self) -> None:
        """Restore the former state of the group."""
        super().undo()
        group = self.group
        restore(group.regexes, self._regexes)
        group.has_partition_metadata = self._had_partition_metadata
        group.regexes_version, group.regexes_resolved_ms = self._resolved
