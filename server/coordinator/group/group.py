"""A group of any type (Kafka: Group). State, without I/O or time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import ClassVar, NamedTuple
from uuid import UUID

from ....protocol.errors import ErrorCode, KafkaError
from .offsets import GroupOffsets, OffsetExpirationCondition


class CommittedPartition(NamedTuple):
    """A partition in a commit of offsets."""

    topic: str
    topic_id: UUID | None
    """None for a topic that does not exist."""
    partition: int


class GroupType(StrEnum):
    """Kafka's Group.GroupType; the value is the type's name in ListGroups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    STREAMS = "streams"
    SHARE = "share"


class Group(ABC):
    """The part of a group that is the same for all types: its id, its offsets, and the questions about its members.

    A further type of group is one more subclass, with a `GroupTypeManager` for its protocol. Changed by the managers of
    the group coordinator, on the loop's thread.
    """

    __slots__ = ("group_id", "offsets")

    type: ClassVar[GroupType]

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.offsets = GroupOffsets()

    @property
    @abstractmethod
    def protocol_type(self) -> str | None:
        """The protocol type of the members; None if the group never had a member."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The name of the state in ListGroups."""

    @property
    @abstractmethod
    def members(self) -> Mapping[str, object]:
        """The members by member id."""

    @property
    @abstractmethod
    def is_dead(self) -> bool:
        """Whether this broker has unloaded or deleted the group."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the group has no members."""

    @property
    @abstractmethod
    def is_logged(self) -> bool:
        """Whether the log has a record of the group, apart from its offsets."""

    @property
    @abstractmethod
    def can_be_forgotten(self) -> bool:
        """Whether the group can be deleted with its last offset: it has no members and expects none."""

    @property
    def is_idle(self) -> bool:
        """Whether the group has neither members nor offsets."""
        return self.can_be_forgotten and not self.offsets

    @property
    @abstractmethod
    def offset_expiration_condition(self) -> OffsetExpirationCondition | None:
        """The condition for the expiration of offsets; None while no offset can expire."""

    @property
    @abstractmethod
    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the members read; None if they are not known."""

    @abstractmethod
    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation: int, version: int
    ) -> ErrorCode:
        """Return NONE if a member may commit offsets, else the error code for that version of OffsetCommit.

        REBALANCE_IN_PROGRESS is for a valid member that has to wait for the assignment.
        """

    def validate_committed_partitions(
        self, member_id: str, generation: int, partitions: Iterable[CommittedPartition]
    ) -> ErrorCode:
        """Return NONE if a member that may commit offsets may do so for these partitions with this epoch.

        An epoch older than the member's present epoch is valid for the partitions that the member already had in that
        epoch (KIP-1251; Kafka: CommitPartitionValidator). A classic group accepts the present generation only.
        """
        return ErrorCode.NONE

    @abstractmethod
    def validate_transactional_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Return NONE if a producer may commit offsets in a transaction. Old producers name no member."""

    @abstractmethod
    def validate_offset_fetch(self, member_id: str | None, generation: int) -> ErrorCode:
        """Return NONE if a client with this member id and generation may fetch offsets."""


def check_group_id(group_id: str) -> None:
    """Raise KafkaError INVALID_GROUP_ID for the empty id, which no member can use.

    Old clients may still store offsets under it.
    """
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")
