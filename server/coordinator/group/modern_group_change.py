"""A change of a group with member epochs: the new state in memory, its records, and the undo."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from ..coordinator_log import CoordinatorRecord
from .modern_group import ModernGroup
from .modern_group_member import ModernGroupMember

G = TypeVar("G", bound=ModernGroup[Any, Any])
M = TypeVar("M", bound=ModernGroupMember)
T = TypeVar("T")
V = TypeVar("V")

LAST_EPOCH = 2**31 - 1
"""The largest value in records and messages."""


class ModernGroupChange(ABC, Generic[G, M, T]):
    """One change of a group, which is applied to the object in memory immediately.

    `records` returns the records of the difference from the former state, `undo` restores the former state. Members
    receive the change after its records are durable. Kafka: the records of a CoordinatorResult, and the snapshots of
    its timeline data structures.
    """

    def __init__(self, group: G) -> None:
        self.group = group
        self.is_written = False
        """Whether the records of the change are in the log."""
        self._members: dict[str, M | None] = {}
        self._targets: dict[str, T | None] = {}
        self._epochs = (group.epoch, group.metadata_hash, group.assignment_epoch)
        self._assignment_timestamp_ms = group.assignment_timestamp_ms
        self._checked_version = group.checked_version

    def put_member(self, member: M) -> None:
        """Add a member or replace its state."""
        former = self.group.members.get(member.member_id)
        if former is not member:
            self._members.setdefault(member.member_id, former)
            self.group.put_member(member)

    def remove_member(self, member_id: str) -> None:
        """Remove a member and its target assignment."""
        self._members.setdefault(member_id, self.group.members[member_id])
        self.group.remove_member(member_id)
        self.set_target(member_id, None)

    def set_target(self, member_id: str, target: T | None) -> None:
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

    def replace_member(self, former: M, member: M) -> None:
        """Transfer the target assignment of the former member id to a restarted static member."""
        if former.member_id == member.member_id:
            self.put_member(member)
            return
        target = self.group.targets.get(former.member_id)
        self.remove_member(former.member_id)
        self.put_member(member)
        self.set_target(member.member_id, target)

    def bump_epoch(self, metadata_hash: int) -> None:
        """Increment the group epoch, so that the next heartbeat computes a target assignment."""
        group = self.group
        if group.epoch < LAST_EPOCH:
            group.epoch += 1
        else:
            # The largest epoch is followed by the first one: members compare epochs for equality only.
            group.epoch, group.assignment_epoch = 1, 0
            group.assignment_timestamp_ms = 0  # no member may adopt epoch 0
        group.metadata_hash = metadata_hash

    def set_assignment_epoch(self, timestamp_ms: int = 0) -> None:
        """Set the epoch of the target assignment to the group's epoch, and the time of its computation (0 for none)."""
        group = self.group
        assert group.assignment_epoch <= group.epoch, f"{group.group_id}: {group.assignment_epoch} > {group.epoch}"
        group.assignment_epoch = group.epoch
        group.assignment_timestamp_ms = timestamp_ms

    @property
    def removed_members(self) -> list[str]:
        """The ids of the members that the change removes."""
        return [name for name, former in self._members.items() if former and name not in self.group.members]

    @property
    def present_members(self) -> list[tuple[M | None, M]]:
        """The former and the present state of each member that the change adds or replaces."""
        members = self.group.members
        return [(former, members[name]) for name, former in self._members.items() if name in members]

    @property
    def new_targets(self) -> list[tuple[str, T]]:
        """The target assignments that the change adds or replaces, by member id."""
        targets = self.group.targets
        return [
            (member_id, targets[member_id])
            for member_id, former in self._targets.items()
            if member_id in targets and targets[member_id] != former
        ]

    @property
    def removed_targets(self) -> list[str]:
        """The ids of the members whose target assignment the change removes."""
        return [name for name, former in self._targets.items() if former is not None and name not in self.group.targets]

    @abstractmethod
    def records(self) -> Iterator[CoordinatorRecord]:
        """Yield the records of the change in an order that Apache Kafka can replay: deletions first."""

    @contextmanager
    def undo_on_error(self) -> Iterator[None]:
        """Undo the change if the block raises an exception before the log has its records.

        Otherwise the group in memory would have a state that the next change takes for written.
        """
        try:
            yield
        except Exception:
            if not self.is_written:
                self.undo()
            raise

    def undo(self) -> None:
        """Restore the former state of the group."""
        group = self.group
        for member_id in self._members:
            if member_id in group.members:
                group.remove_member(member_id)
        for former in self._members.values():
            if former is not None:
                group.put_member(former)
        restore(group.targets, self._targets)
        group.epoch, group.metadata_hash, group.assignment_epoch = self._epochs
        group.assignment_timestamp_ms = self._assignment_timestamp_ms
        group.checked_version = self._checked_version


def restore(present: dict[str, V], former: dict[str, V | None]) -> None:
    """Set the former values of the changed keys; None for a key that did not exist."""
    for key, value in former.items():
        if value is None:
            present.pop(key, None)
        else:
            present[key] = value
