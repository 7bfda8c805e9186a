"""The part of the replay that groups with member epochs have in common (Kafka: GroupMetadataManager.replay)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

from .modern_group import ModernGroup
from .modern_group_member import ModernGroupMember

G = TypeVar("G", bound=ModernGroup[Any, Any])
"""The type of the groups."""
M = TypeVar("M", bound=ModernGroupMember)
"""The type of their members."""

Replay: TypeAlias = Callable[[Any, bytes, bytes], None]
"""A method of a loader that applies the records of one type: key and value."""


class MemberKey(Protocol):
    """The key of a record about a member."""

    group_id: str
    member_id: str


class GroupEpochValue(Protocol):
    """The value of the record with the epoch of a group."""

    epoch: int
    metadata_hash: int


class TargetAssignmentEpochValue(Protocol):
    """The value of the record with the epoch of a group's target assignment."""

    assignment_epoch: int
    assignment_timestamp: int


class ModernGroupLoader(Generic[G, M]):
    """The groups of one type in one partition while their records, the last of each key, are replayed in any order.

    Created by a `GroupLoader` for one load of the partition. A subclass has a method for each type of record.
    """

    REPLAYS: ClassVar[Mapping[int, Replay]]
    """The methods by record type (the version of the key)."""

    def __init__(self, group_type: Callable[[str], G], member_type: Callable[[str], M]) -> None:
        self.groups: dict[str, G] = {}
        self._group_type = group_type
        self._member_type = member_type

    def replay(self, record_type: int, key: bytes, value: bytes) -> None:
        """Apply a record of a type in `REPLAYS`. Raises ProtocolError."""
        self.REPLAYS[record_type](self, key, value)

    def get_or_create_group(self, group_id: str) -> G:
        """Return the group, which is new if this is its first record."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = self._group_type(group_id)
        return group

    def get_or_create_member(self, owner: MemberKey) -> tuple[G, M]:
        """Return the group and the member of a record. A new member is not in the group yet."""
        group = self.get_or_create_group(owner.group_id)
        return group, group.members.get(owner.member_id) or self._member_type(owner.member_id)

    def set_group_epoch(self, group_id: str, read: GroupEpochValue) -> G:
        """Apply the record of a group's epoch, and return the group."""
        group = self.get_or_create_group(group_id)
        group.epoch, group.metadata_hash = read.epoch, read.metadata_hash
        return group

    def set_target_assignment_epoch(self, group_id: str, read: TargetAssignmentEpochValue) -> None:
        """Apply the record of the epoch and the time of a group's target assignment."""
        group = self.get_or_create_group(group_id)
        group.assignment_epoch, group.assignment_timestamp_ms = read.assignment_epoch, read.assignment_timestamp
