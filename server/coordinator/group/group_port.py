"""A group of whatever kind, as offsets, deletion and listings see it, and where groups are kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ....protocol.errors import ErrorCode
from ..allowance import Maker
from .offsets import GroupOffsets, OffsetExpiry


class GroupPort(Protocol):
    """A group of any kind (`Group`, `ConsumerGroup`). State, without I/O or time."""

    @property
    def group_id(self) -> str:
        """Its name."""

    @property
    def type_name(self) -> str:
        """The kind that it is, as ListGroups calls it."""

    @property
    def protocol_type(self) -> str | None:
        """What its members are; None if nobody has ever been one."""

    @property
    def state_name(self) -> str:
        """The state as ListGroups calls it."""

    @property
    def members(self) -> Mapping[str, object]:
        """Who is in it, by member id."""

    @property
    def is_dead(self) -> bool:
        """Whether it is removed here."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost without it."""

    @property
    def is_logged(self) -> bool:
        """Whether there is a record of it, its offsets aside."""

    @property
    def can_be_forgotten(self) -> bool:
        """Whether nobody is in it or about to be, so that it may go with its last offset."""

    @property
    def offsets(self) -> GroupOffsets:
        """What it has committed."""

    @property
    def offset_expiry(self) -> OffsetExpiry | None:
        """From when on the time of its offsets runs; None while none of them may go."""

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """What its consumers read; None if that cannot be known."""

    def is_subscribed(self, topic: str) -> bool:
        """Whether its consumers read the topic, as far as is known."""

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, version: int) -> ErrorCode:
        """Whether a commit may be stored, in the words of that version of OffsetCommit.

        REBALANCE_IN_PROGRESS is for a member in order that comes at the wrong time.
        """

    def check_commit_in_transaction(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Whether a commit may be stored that is part of a transaction: older producers say nothing of the member."""

    def check_fetch(self, member_id: str | None, generation: int) -> ErrorCode:
        """Whether the offsets may be told to somebody who claims to be this member of this generation."""


class GroupTable(Protocol):
    """Where the groups of this broker are kept (`GroupCoordinator`). Raises KafkaError for those of others."""

    def find(self, group_id: str) -> GroupPort | None:
        """A group of this broker, None if it does not exist."""

    def existing(self, group_id: str) -> GroupPort:
        """A group of this broker. Raises KafkaError GROUP_ID_NOT_FOUND, too."""

    def check_room(self, maker: Maker) -> None:
        """Raises KafkaError GROUP_MAX_SIZE_REACHED if the client must not make one more group."""

    def add(self, group: GroupPort, maker: Maker) -> None:
        """Add a group."""

    def put(self, group: GroupPort) -> None:
        """Put a group in the place of the one of its name."""
