"""A change of a group that is not written yet: the group as it will be, the records that say so, and the way back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from ...coordinator_log import Entry
from . import records
from .assignment import Assignment
from .group import NO_EPOCH, ConsumerGroup, ResolvedRegex
from .member import ConsumerMember

T = TypeVar("T")


class Change:
    """Alters a group at once and remembers how it was: `entries` tells the difference, `undo` takes it back.

    Members are told of it once the entries are durable; if they cannot be appended it never was.
    """

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self._members: dict[str, ConsumerMember | None] = {}
        self._targets: dict[str, Assignment | None] = {}
        self._regexes: dict[str, ResolvedRegex | None] = {}
        self._epochs = (group.epoch, group.metadata_hash, group.assignment_epoch)
        self._had_partition_metadata = group.has_partition_metadata
        self._checked = (group.checked_version, group.regexes_version, group.regexes_resolved_ms)
        self._is_new = group.assignment_epoch == NO_EPOCH and not group.epoch

    def put_member(self, member: ConsumerMember) -> None:
        """Put a member in, or replace it."""
        former = self.group.members.get(member.member_id)
        if former is not member:
            self._members.setdefault(member.member_id, former)
            self.group.put_member(member)

    def remove_member(self, member_id: str) -> None:
        """Remove a member and its part of the target assignment."""
        self._members.setdefault(member_id, self.group.members[member_id])
        self.group.remove_member(member_id)
        self.set_target(member_id, None)

    def set_target(self, member_id: str, target: Assignment | None) -> None:
        """Set a member's target assignment."""
        targets = self.group.targets
        former = targets.get(member_id)
        if former == target:
            return
        self._targets.setdefault(member_id, former)
        if target is None:
            del targets[member_id]
        else:
            targets[member_id] = target

    def set_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Set what a regular expression matches."""
        regexes = self.group.regexes
        self._regexes.setdefault(regex, regexes.get(regex))
        if resolved is None:
            regexes.pop(regex, None)
        else:
            regexes[regex] = resolved

    def raise_epoch(self, metadata_hash: int) -> None:
        """Raise the group's epoch, so that its target assignment is out of date."""
        self.group.epoch += 1
        self.group.metadata_hash = metadata_hash
        self.group.has_partition_metadata = False

    @property
    def gone(self) -> list[str]:
        """Who was a member and is none any more."""
        return [name for name, former in self._members.items() if former and name not in self.group.members]

    def entries(self) -> Iterator[Entry]:
        """What is to be written, in an order in which Apache Kafka can read it: what goes first, then what comes."""
        group, group_id, gone = self.group, self.group.group_id, self.gone
        for member_id in gone:
            yield records.assigned_key(group_id, member_id), None
        for member_id, former in self._targets.items():
            if former is not None and member_id not in group.targets:
                yield records.target_key(group_id, member_id), None
        for member_id in gone:
            yield records.member_key(group_id, member_id), None
        present = [(former, group.members[name]) for name, former in self._members.items() if name in group.members]
        for before, member in present:
            if before is None or not records.says_the_same(before, member):
                yield records.member_entry(group_id, member)
        yield from self._group_entries()
        for before, member in present:
            if before is None or not records.stands_the_same(before, member):
                yield records.assigned_entry(group_id, member)

    def _group_entries(self) -> Iterator[Entry]:
        group, group_id = self.group, self.group.group_id
        epoch, metadata_hash, assignment_epoch = self._epochs
        for regex, resolved in self._regexes.items():
            now = group.regexes.get(regex)
            if now != resolved:
                yield records.regex_entry(group_id, regex, now)
        if self._had_partition_metadata and not group.has_partition_metadata:
            yield records.partition_metadata_key(group_id), None
        if (epoch, metadata_hash) != (group.epoch, group.metadata_hash) or self._is_new:
            yield records.group_entry(group)
        for member_id, former in self._targets.items():
            target = group.targets.get(member_id)
            if target is not None and target != former:
                yield records.target_entry(group_id, member_id, target)
        if assignment_epoch != group.assignment_epoch:
            yield records.assignment_epoch_entry(group)

    def undo(self) -> None:
        """Put the group back as it was."""
        group = self.group
        for member_id in self._members:
            if member_id in group.members:
                group.remove_member(member_id)
        for former in self._members.values():
            if former is not None:
                group.put_member(former)
        _restore(group.targets, self._targets)
        _restore(group.regexes, self._regexes)
        group.epoch, group.metadata_hash, group.assignment_epoch = self._epochs
        group.has_partition_metadata = self._had_partition_metadata
        group.checked_version, group.regexes_version, group.regexes_resolved_ms = self._checked


def _restore(present: dict[str, T], former: dict[str, T | None]) -> None:
    for key, value in former.items():
        if value is None:
            present.pop(key, None)
        else:
            present[key] = value
