"""Kafka's ShareGroup: members that share the partitions of their topics. State without I/O or time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from .....protocol.errors import ErrorCode, KafkaError
from ..assignment import Assignment
from ..group import Group, GroupType
from ..modern_group import ModernGroup
from ..offsets import OffsetExpirationCondition
from .share_group_member import ShareGroupMember
from .state_partition_metadata import StatePartitionMetadata

SHARE_PROTOCOL_TYPE = "share"


class ShareGroupState(StrEnum):
    """The states of a share group; the value is the name in ShareGroupDescribe and ListGroups."""

    EMPTY = "Empty"
    """No members; start offsets may remain."""
    STABLE = "Stable"
    """The group has members."""
    DEAD = "Dead"
    """This broker has unloaded or deleted the group: a member has to find its coordinator again."""


class InitializationCheck(NamedTuple):
    """A search for partitions to initialize that found none. The result is valid for this state, until `until_ms`."""

    metadata_version: int
    epoch: int
    state_partitions: StatePartitionMetadata | None
    until_ms: float

    def is_valid(self, metadata_version: int, group: ShareGroup, now_ms: int) -> bool:
        """Return whether the state is the same, and `now_ms` is before `until_ms`."""
        return (
            self.metadata_version == metadata_version
            and self.epoch == group.epoch
            and self.state_partitions is group.state_partitions
            and now_ms < self.until_ms
        )


class ShareGroup(ModernGroup[ShareGroupMember, Assignment]):
    """The state of a share group. Changed by a `ShareGroupChange`, which can undo a change that is not written.

    The group has no committed offsets: the share coordinator stores the delivery state of its partitions (share state),
    and the group has a record of the partitions with share state.
    """

    __slots__ = ("_settled", "_subscriptions", "initialization_check", "state_partitions")

    protocol_type = SHARE_PROTOCOL_TYPE
    type = GroupType.SHARE

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.state_partitions: StatePartitionMetadata | None = None
        """The partitions with share state; None if the log has no record of them."""
        self.initialization_check: InitializationCheck | None = None
        """The last search for partitions to initialize that found none."""
        self._settled: tuple[int, StatePartitionMetadata] | None = None
        self._subscriptions: Counter[frozenset[str]] = Counter()

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ShareGroupState:
        if self.is_dead:
            return ShareGroupState.DEAD
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def can_be_forgotten(self) -> bool:
        """Whether the group has neither members nor share state."""
        return not self.members and self.state_partitions is None

    # -- members -------------------------------------------------------------------------------------------------------

    def put_member(self, member: ShareGroupMember) -> None:
        former = self.members.get(member.member_id)
        if former is not None:
            self._remove_subscription(former)
        self._subscriptions[member.topics] += 1
        self.members[member.member_id] = member

    def remove_member(self, member_id: str) -> None:
        self._remove_subscription(self.members.pop(member_id))

    def _remove_subscription(self, member: ShareGroupMember) -> None:
        self._subscriptions[member.topics] -= 1
        if not self._subscriptions[member.topics]:
            del self._subscriptions[member.topics]

    @property
    def subscriptions(self) -> Iterable[frozenset[str]]:
        """The distinct subscriptions of the members."""
        return self._subscriptions.keys()

    @property
    def subscribed_topics(self) -> frozenset[str]:
        return frozenset().union(*self._subscriptions)

    def has_unassigned_partitions(self, get_topic_name: Callable[[UUID], str | None]) -> bool:
        """Return whether initialized partitions of subscribed topics are not in the target assignment.

        Kafka: GroupMetadataManager.initializedAssignmentPending. `get_topic_name` returns None for a deleted topic,
        which is never assigned. A negative result is cached for the group epoch and the record of partitions: each
        heartbeat calls this method, and the search reads the target assignments of all members.
        """
        known = self.state_partitions
        if known is None or not known.initialized or not self.members:
            return False
        if self._settled is not None and self._settled[0] == self.epoch and self._settled[1] is known:
            return False
        topics = self.subscribed_topics
        assigned: dict[UUID, set[int]] = {}
        for target in self.targets.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        for topic_id, state in known.initialized.items():
            is_wanted = state.name in topics and get_topic_name(topic_id) == state.name
            if is_wanted and assigned.get(topic_id, set()) != set(state.partitions):
                return True
        self._settled = (self.epoch, known)
        return False

    # -- committed offsets: share groups have none ---------------------------------------------------------------------

    @property
    def offset_expiration_condition(self) -> OffsetExpirationCondition | None:
        return None

    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation: int, version: int
    ) -> ErrorCode:
        """Return GROUP_ID_NOT_FOUND: the group has no committed offsets."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def validate_transactional_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Return GROUP_ID_NOT_FOUND: the group has no committed offsets."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def validate_offset_fetch(self, member_id: str | None, generation: int) -> ErrorCode:
        """Return NONE: as in Kafka the response reports that no partition has an offset."""
        return ErrorCode.NONE


def check_share_group(group: Group) -> ShareGroup:
    """Return the group if it is a share group. Raises KafkaError GROUP_ID_NOT_FOUND."""
    if not isinstance(group, ShareGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a share group.")
    return group
