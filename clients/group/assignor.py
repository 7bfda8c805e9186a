"""The interface of assignors: a pure function of a member that the group's leader runs to assign partitions to
members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from ...protocol.topic_partition import TopicPartition

NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """The subscription of one member in JoinGroup. `generation` is the generation of its owned partitions, -1
    unknown.
    """

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
"""Racks of a partition's replicas; partitions without racks may be missing."""
NO_RACKS: PartitionRacks = MappingProxyType({})


class Assignor(Protocol):
    """The interface of assignors, also of an application's own. All members of a group must support one in common."""

    name: str
    is_cooperative: bool
    """Whether a member may keep its partitions during a rebalance (KIP-429)."""

    def user_data(self) -> bytes | None:
        """Return the user data of the member's subscription for the leader's assignor."""

    def assign(
        self, partition_counts: Mapping[str, int], members: Members, partition_racks: PartitionRacks = NO_RACKS
    ) -> Assignments:
        """Assign every partition of the existing topics to one of the members subscribed to it."""

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Receive the member's assignment."""


class StatelessAssignor:
    """An eager assignor that uses subscriptions only."""

    is_cooperative = False

    def user_data(self) -> bytes | None:
        return None

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Do nothing: this assignor has no state."""


def in_order(members: Members) -> list[str]:
    """Sort member ids as Kafka does: static members by their instance id first, so that restarts change nothing."""

    def key(member_id: str) -> tuple[bool, str]:
        instance = members[member_id].group_instance_id
        return (True, member_id) if instance is None else (False, instance)

    return sorted(members, key=key)


def partitions_of(partition_counts: Mapping[str, int], topics: Iterable[str]) -> list[TopicPartition]:
    """Return all partitions of the existing topics, sorted."""
    return [TopicPartition(topic, index) for topic in sorted(topics) for index in range(partition_counts.get(topic, 0))]
