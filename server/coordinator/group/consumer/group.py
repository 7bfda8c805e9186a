"""A group of the consumer protocol: members, epochs, target assignment and offsets. State, without I/O or time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar
from uuid import UUID

from .....protocol.errors import ErrorCode, KafkaError
from ..group import CONSUMER_PROTOCOL_TYPE
from ..member import Protocols
from ..offsets import GroupOffsets, OffsetExpiry
from .assignment import NOTHING, Assignment
from .member import ConsumerMember
from .states import ConsumerGroupState

K = TypeVar("K")

NO_EPOCH = -1
FIRST_COMMIT_VERSION = 9
"""Of OffsetCommit and OffsetFetch: older ones cannot tell a member that its epoch is over."""


class ResolvedRegex(NamedTuple):
    """The topics whose names a regular expression matched, and when."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class WantedTopics(NamedTuple):
    """What a member reads: topics by name, and those that match a regular expression (empty for none)."""

    topics: frozenset[str]
    regex: str


class ConsumerGroup:
    """Kafka's ConsumerGroup. Change it through a `Change`, which can take back what could not be written.

    Invariants: a partition is assigned to, or being revoked from, at most one member; `assignment_epoch <= epoch`; an
    instance id leads to exactly one member.
    """

    __slots__ = (
        "_assignors",
        "_classic_protocols",
        "_owners",
        "_static",
        "_subscriptions",
        "assignment_epoch",
        "checked_version",
        "classic_count",
        "epoch",
        "fenced",
        "group_id",
        "has_partition_metadata",
        "is_dead",
        "members",
        "metadata_hash",
        "offsets",
        "regexes",
        "regexes_resolved_ms",
        "regexes_version",
        "targets",
        "writes",
    )

    protocol_type = CONSUMER_PROTOCOL_TYPE
    type_name = "consumer"
    is_logged = True
    """It counts once its records are written."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = NO_EPOCH
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Assignment] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.offsets = GroupOffsets()
        self.is_dead = False
        self.has_partition_metadata = False
        """Kafka 4.0 or older wrote a record about its topics, which is to go."""
        self.checked_version = NO_EPOCH
        """Which version of the cluster's metadata its topics were last compared with."""
        self.regexes_version = NO_EPOCH
        self.regexes_resolved_ms = 0
        self.fenced: set[str] = set()
        """Members that were told to give everything up: they may begin anew under their ids."""
        self.writes: list[list[Callable[[ErrorCode], None]]] = []
        """Who waits for each of the appends that are not durable yet, in the order of the log."""
        self.classic_count = 0
        self._static: dict[str, str] = {}
        self._owners: dict[UUID, dict[int, str]] = {}
        self._subscriptions: Counter[WantedTopics] = Counter()
        self._assignors: Counter[str] = Counter()
        self._classic_protocols: Counter[str] = Counter()

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        """Looks at every member."""
        if self.is_dead:
            return ConsumerGroupState.DEAD
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.has_reached(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def state_name(self) -> str:
        """The state as ListGroups calls it."""
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def can_be_forgotten(self) -> bool:
        """Whether nobody is in it or about to be, so that it may go with its last offset."""
        return not self.members

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost without it."""
        return not self.members and not self.offsets

    # -- members ---------------------------------------------------------------------------------------------------

    def put_member(self, member: ConsumerMember) -> None:
        """Take a member in, or as it is now."""
        former = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if former is None or former.assigned is not member.assigned or former.revoking is not member.revoking:
            if former is not None:
                self._disown(former)
            for assignment in (member.assigned, member.revoking):
                for topic_id, partitions in assignment.items():
                    self._owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member.member_id))
        if former is not None:
            self._count(former, -1)
        self._count(member, 1)

    def remove_member(self, member_id: str) -> None:
        """Let a member go with all it owns."""
        member = self.members.pop(member_id)
        self._disown(member)
        self._count(member, -1)

    def _disown(self, member: ConsumerMember) -> None:
        for assignment in (member.assigned, member.revoking):
            for topic_id, partitions in assignment.items():
                owners = self._owners.get(topic_id, {})
                for partition in partitions:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    self._owners.pop(topic_id, None)

    def _count(self, member: ConsumerMember, change: int) -> None:
        """Keep the sums over the members."""
        _add(self._subscriptions, WantedTopics(member.topics, member.regex), change)
        if member.assignor is not None:
            _add(self._assignors, member.assignor, change)
        if member.classic is not None:
            self.classic_count += change
            for name in {name for name, _ in member.classic.protocols}:
                _add(self._classic_protocols, name, change)
        if member.instance_id is not None:
            if change > 0:
                self._static[member.instance_id] = member.member_id
            elif self._static.get(member.instance_id) == member.member_id:
                del self._static[member.instance_id]

    def member(self, member_id: str) -> ConsumerMember:
        """A member. Raises KafkaError UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = None if instance_id is None else self._static.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def known_member(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """A member by its id, which has to be the present one of its instance id if it names that.

        Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        if instance_id is None:
            return self.member(member_id)
        member = self.static_member(instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            reason = f"Static member {member_id} with instance id {instance_id} is fenced by member {member.member_id}."
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, reason)
        return member

    def is_free(self, topic_id: UUID, partition: int) -> bool:
        """Whether nobody owns a partition."""
        return self.owner(topic_id, partition) is None

    def owner(self, topic_id: UUID, partition: int) -> str | None:
        """The id of the member that has a partition, or has not said yet that it let go of it."""
        owners = self._owners.get(topic_id)
        return None if owners is None else owners.get(partition)

    @property
    def preferred_assignor(self) -> str | None:
        """The assignor that most members ask for."""
        return self._assignors.most_common(1)[0][0] if self._assignors else None

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a classic member with these protocols can work together with those that are here."""
        if protocol_type != CONSUMER_PROTOCOL_TYPE or not protocols:
            return False
        return any(self._classic_protocols[name] == self.classic_count for name, _ in protocols)

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether nothing of what a member waits for is free yet."""
        target = self.targets.get(member.member_id, NOTHING)
        return any(
            partition not in member.assigned.get(topic_id, frozenset()) and not self.is_free(topic_id, partition)
            for topic_id, partitions in target.items()
            for partition in partitions
        )

    # -- what its members read -------------------------------------------------------------------------------------

    @property
    def subscriptions(self) -> Iterable[WantedTopics]:
        """The different subscriptions of its members."""
        return self._subscriptions.keys()

    def topics_of(self, subscription: WantedTopics) -> frozenset[str]:
        """The names of the topics that a subscription means now."""
        resolved = self.regexes.get(subscription.regex)
        return subscription.topics | resolved.topics if resolved is not None else subscription.topics

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """The names of all topics that its members read."""
        return frozenset().union(*map(self.topics_of, self._subscriptions))

    def is_subscribed(self, topic: str) -> bool:
        """Whether some member reads the topic."""
        return any(topic in self.topics_of(subscription) for subscription in self._subscriptions)

    @property
    def used_regexes(self) -> set[str]:
        """The regular expressions that some member subscribes to."""
        return {subscription.regex for subscription in self._subscriptions if subscription.regex}

    # -- offsets ---------------------------------------------------------------------------------------------------

    @property
    def offset_expiry(self) -> OffsetExpiry:
        """The time runs from each commit, for topics that no member reads."""
        return OffsetExpiry(keep=self.subscribed_topics)

    def check_commit(self, member_id: str, instance_id: str | None, epoch: int, version: int) -> ErrorCode:
        """Whether a commit may be stored, in the words of that version of OffsetCommit."""
        if self.is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if epoch < 0 and not self.members:
            return ErrorCode.NONE
        try:
            member = self.known_member(member_id, instance_id)
        except KafkaError as error:
            return error.code
        if member.classic is None and version < FIRST_COMMIT_VERSION:
            return ErrorCode.UNSUPPORTED_VERSION
        return _check_epoch(member, epoch)

    def check_commit_in_transaction(self, member_id: str, instance_id: str | None, epoch: int) -> ErrorCode:
        """Whether a commit may be stored that is part of a transaction."""
        if self.is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if epoch < 0 and (not self.members or (not member_id and instance_id is None)):
            return ErrorCode.NONE
        try:
            member = self.known_member(member_id, instance_id)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE if epoch == member.epoch else ErrorCode.ILLEGAL_GENERATION

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether somebody may be told the offsets: present members, and those who claim to be none."""
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        return ErrorCode.UNKNOWN_MEMBER_ID if member is None else _check_epoch(member, epoch)


def _check_epoch(member: ConsumerMember, epoch: int) -> ErrorCode:
    if epoch == member.epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _add(counts: Counter[K], key: K, change: int) -> None:
    counts[key] += change
    if not counts[key]:
        del counts[key]
