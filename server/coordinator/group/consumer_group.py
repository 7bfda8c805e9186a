"""Kafka's ConsumerGroup: members, epochs, target assignment and owners of partitions. State without I/O or time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set
from enum import StrEnum
from typing import NamedTuple, TypeVar
from uuid import UUID

from ....protocol.errors import ErrorCode
from .assignment import NOTHING, Assignment
from .classic_group import CONSUMER_PROTOCOL_TYPE, Protocols
from .consumer_group_member import ConsumerGroupMember
from .group import CommittedPartition, GroupType
from .group_with_static_members import GroupWithStaticMembers
from .modern_group import NO_EPOCH

K = TypeVar("K")


class ConsumerGroupState(StrEnum):
    """The states of a consumer group; the value is the name in ConsumerGroupDescribe and ListGroups."""

    EMPTY = "Empty"
    """No members; offsets may remain."""
    ASSIGNING = "Assigning"
    """The target assignment is older than the group epoch."""
    RECONCILING = "Reconciling"
    """A member does not have its target assignment yet."""
    STABLE = "Stable"
    """Each member has its target assignment."""
    DEAD = "Dead"
    """This broker has unloaded or deleted the group: a member has to find its coordinator again."""


class ResolvedRegularExpression(NamedTuple):
    """The topics that match a regular expression, with the version of the metadata and the time."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class TopicSubscription(NamedTuple):
    """The subscription of a member: names of topics, and a regular expression (empty for none)."""

    topics: frozenset[str]
    regex: str


class ConsumerGroup(GroupWithStaticMembers[ConsumerGroupMember, Assignment]):
    """The state of a consumer group. Changed by a `ConsumerGroupChange`, which can undo a change that is not written.

    Invariants: a partition is assigned to, or being revoked from, at most one member; `assignment_epoch <= epoch`; an
    instance id belongs to exactly one member.
    """

    __slots__ = (
        "_assignors",
        "_classic_protocols",
        "_owners",
        "_regexes",
        "_subscriptions",
        "classic_count",
        "has_partition_metadata",
        "is_resolving_regexes",
        "regexes",
        "regexes_resolved_ms",
        "regexes_version",
    )

    protocol_type = CONSUMER_PROTOCOL_TYPE
    type = GroupType.CONSUMER

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.regexes: dict[str, ResolvedRegularExpression] = {}
        self.has_partition_metadata = False
        """Whether the log has a record about the group's topics, of Kafka 4.0 or older; the next change deletes it."""
        self.is_resolving_regexes = False
        self.regexes_version = NO_EPOCH
        self.regexes_resolved_ms = 0
        self.classic_count = 0
        self._owners: dict[UUID, dict[int, str]] = {}
        self._subscriptions: Counter[TopicSubscription] = Counter()
        self._regexes: Counter[str] = Counter()
        self._assignors: Counter[str] = Counter()
        self._classic_protocols: Counter[str] = Counter()

    # -- state -----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        """The state, computed from the epochs and all members."""
        if self.is_dead:
            return ConsumerGroupState.DEAD
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.has_reached(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    # -- members ---------------------------------------------------------------------------------------------------

    def put_member(self, member: ConsumerGroupMember) -> None:
        """Add a member or replace its state."""
        former = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if former is None or former.assigned is not member.assigned or former.revoking is not member.revoking:
            if former is not None:
                self._disown(former)
            for assignment in (member.assigned, member.revoking):
                for topic_id, partitions in assignment.items():
                    # No other member owns them: `build_current_assignment` assigns free partitions only.
                    self._owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member.member_id))
        if former is not None:
            self._count(former, -1)
            self.remove_instance(former)
        self._count(member, 1)
        self.add_instance(member)

    def remove_member(self, member_id: str) -> None:
        """Remove a member and its ownership of partitions."""
        member = self.members.pop(member_id)
        self._disown(member)
        self._count(member, -1)
        self.remove_instance(member)

    def _disown(self, member: ConsumerGroupMember) -> None:
        for assignment in (member.assigned, member.revoking):
            for topic_id, partitions in assignment.items():
                owners = self._owners.get(topic_id, {})
                for partition in partitions:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    self._owners.pop(topic_id, None)

    def _count(self, member: ConsumerGroupMember, change: int) -> None:
        """Update the sums over the members."""
        _add(self._subscriptions, TopicSubscription(member.topics, member.regex), change)
        if member.regex:
            _add(self._regexes, member.regex, change)
        if member.assignor is not None:
            _add(self._assignors, member.assignor, change)
        if member.classic is not None:
            self.classic_count += change
            for name in {name for name, _ in member.classic.protocols}:
                _add(self._classic_protocols, name, change)

    def is_free(self, topic_id: UUID, partition: int) -> bool:
        """Return whether a partition has no owner."""
        return self.owner(topic_id, partition) is None

    def owner(self, topic_id: UUID, partition: int) -> str | None:
        """Return the id of the member that has a partition, or has not confirmed its revocation."""
        owners = self._owners.get(topic_id)
        return None if owners is None else owners.get(partition)

    @property
    def preferred_assignor(self) -> str | None:
        """The assignor that most members prefer; of several the last by name, as "uniform" in Kafka."""
        # Not `most_common`, whose order of equal counts changes with each change of a member.
        return max(self._assignors, key=lambda name: (self._assignors[name], name), default=None)

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether one of a classic member's protocols is supported by all classic members."""
        if protocol_type != CONSUMER_PROTOCOL_TYPE or not protocols:
            return False
        return any(self._classic_protocols[name] == self.classic_count for name, _ in protocols)

    def waits_for_others(self, member: ConsumerGroupMember) -> bool:
        """Return whether a partition of a member's target assignment still has another owner."""
        target = self.targets.get(member.member_id, NOTHING)
        return any(
            partition not in member.assigned.get(topic_id, frozenset()) and not self.is_free(topic_id, partition)
            for topic_id, partitions in target.items()
            for partition in partitions
        )

    # -- subscriptions -------------------------------------------------------------------------------------------------

    @property
    def subscriptions(self) -> Iterable[TopicSubscription]:
        """The distinct subscriptions of the members."""
        return self._subscriptions.keys()

    def topics_of(self, subscription: TopicSubscription) -> frozenset[str]:
        """Return the names of the topics of a subscription, with the matches of its regular expression."""
        resolved = self.regexes.get(subscription.regex)
        return subscription.topics | resolved.topics if resolved is not None else subscription.topics

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """The names of all topics that the members read."""
        return frozenset().union(*map(self.topics_of, self._subscriptions))

    @property
    def used_regexes(self) -> Set[str]:
        """The regular expressions to which members subscribe."""
        return self._regexes.keys()

    # -- offsets ---------------------------------------------------------------------------------------------------

    def find_committing_member(self, member_id: str, instance_id: str | None) -> ConsumerGroupMember:
        """Return the member that commits offsets. Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        return self.get_valid_member(member_id, instance_id)

    def validate_committed_partitions(
        self, member_id: str, generation: int, partitions: Iterable[CommittedPartition]
    ) -> ErrorCode:
        member = self.members.get(member_id)
        if member is None or generation == member.epoch:
            return ErrorCode.NONE
        for _, topic_id, partition in partitions:
            epoch = None if topic_id is None else member.assignment_epoch(topic_id, partition)
            if epoch is None or generation < epoch:
                return member.stale_epoch_error
        return ErrorCode.NONE


def _add(counts: Counter[K], key: K, change: int) -> None:
    counts[key] += change
    if not counts[key]:
        del counts[key]
