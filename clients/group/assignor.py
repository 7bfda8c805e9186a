"""What an assignor is: a member's pure function that the group's leader runs to divide partitions among members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from ...protocol.topic_partition import TopicPartition

NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What one member said when it joined. `generation` is the one in which it was given what it owns, -1 unknown."""

    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    user_data: bytes | None = None
    group_instance_id: str | None = None
    rack: str | None = None


Members = Mapping[str, MemberSubscription]
"""Subscriptions by member id."""
Assignments = dict[str, list[TopicPartition]]
"""Partitions by member id."""
PartitionRacks = Mapping[TopicPartition, frozenset[str]]
"""The racks that a partition's replicas are in; partitions without any may be missing."""
NO_RACKS: PartitionRacks = MappingProxyType({})


class Assignor(Protocol):
    """A strategy by its name in the JoinGroup request; all members that share a group must know it."""

    name: str
    is_cooperative: bool
    """Whether a member may keep what it owns while the group rebalances (KIP-429)."""

    def user_data(self) -> bytes | None:
        """What the member tells the leader's assignor beside its subscription."""

    def assign(
        self, partition_counts: Mapping[str, int], members: Members, partition_racks: PartitionRacks = NO_RACKS
    ) -> Assignments:
        """Give every partition of the topics that exist to one of the members subscribed to it."""

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """The member was given these."""


class StatelessAssignor:
    """An eager assignor that looks at subscriptions only."""

    is_cooperative = False

    def user_data(self) -> bytes | None:
        return None

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Nothing is remembered."""


def in_order(members: Members) -> list[str]:
    """Member ids as Kafka sorts them: static members by their instance first, so that restarts change nothing."""

    def key(member_id: str) -> tuple[bool, str]:
        instance = members[member_id].group_instance_id
        return (True, member_id) if instance is None else (False, instance)

    return sorted(members, key=key)


def partitions_of(partition_counts: Mapping[str, int], topics: Iterable[str]) -> list[TopicPartition]:
    """All partitions of those of the topics that exist, sorted."""
    return [TopicPartition(topic, index) for topic in sorted(topics) for index in range(partition_counts.get(topic, 0))]
