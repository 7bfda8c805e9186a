"""Kafka's ModernGroup: members with epochs that approach a target assignment. State without I/O or time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Generic, TypeVar

from ....protocol.errors import ErrorCode, KafkaError
from .group import Group
from .modern_group_member import ModernGroupMember

M = TypeVar("M", bound=ModernGroupMember)
"""The type of the members."""
T = TypeVar("T")
"""The type of a member's target assignment."""

NO_EPOCH = -1
FIRST_EPOCH = 1
"""The group epoch and the assignment epoch of a group without records, as in Kafka. The first member usually raises the
group epoch to 2."""


class ModernGroup(Group, Generic[M, T]):
    """The state that groups have in common whose coordinator assigns partitions: consumer, share and streams groups.

    The group epoch counts the changes of subscriptions and topics. The target assignment has the epoch for which it was
    computed, and each member the epoch of the last target assignment that it has adopted. Changed by a
    `ModernGroupChange`, which can undo a change that is not written. Invariant: `assignment_epoch <= epoch`.
    """

    __slots__ = (
        "assignment_epoch",
        "assignment_timestamp_ms",
        "checked_version",
        "epoch",
        "is_dead",
        "members",
        "metadata_hash",
        "targets",
        "writes",
    )

    is_logged = True  # a group is added when its records are in the log

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        """A hash of the subscribed topics and their partitions at the last change of the epoch."""
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        """The time of the target assignment's computation; 0 if the next assignment can be computed at any time."""
        self.members: dict[str, M] = {}
        self.targets: dict[str, T] = {}
        """The target assignments by member id."""
        self.is_dead: bool = False
        self.checked_version = NO_EPOCH
        """The version of the cluster's metadata at the last comparison with the group's topics."""
        self.writes: list[list[Callable[[ErrorCode], None]]] = []
        """The functions that wait for each append in flight, in the order of the log."""

    @property
    @abstractmethod
    def state(self) -> Enum:
        """The state; the value is its name in responses."""

    @property
    def state_name(self) -> str:
        return str(self.state.value)

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def can_be_forgotten(self) -> bool:
        return not self.members

    def can_compute_target_assignment(self, interval_ms: int, now_ms: int) -> bool:
        """Return whether the assignment interval of the group has passed since the last computation (KIP-1263)."""
        timestamp_ms = self.assignment_timestamp_ms
        # The clock was set back after a timestamp in the future: the interval counts as passed.
        return not timestamp_ms or not timestamp_ms <= now_ms < timestamp_ms + interval_ms

    @property
    @abstractmethod
    def subscribed_topics(self) -> frozenset[str]:
        """The names of all topics that the members read."""

    @abstractmethod
    def put_member(self, member: M) -> None:
        """Add a member or replace its state."""

    @abstractmethod
    def remove_member(self, member_id: str) -> None:
        """Remove a member."""

    def get_member(self, member_id: str) -> M:
        """Return a member. Raises KafkaError UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member
