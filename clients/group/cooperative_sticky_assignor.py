"""`cooperative-sticky`: as `sticky`, but members continue to read their retained partitions during a rebalance
(KIP-429).

A partition that moves is assigned to no member in the first round; its owner revokes it and joins again, and the second
round assigns it. It never has two owners, although no member stops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...protocol.topic_partition import TopicPartition
from .assignor import NO_GENERATION, NO_RACKS, Assignments, Members, MemberSubscription, PartitionRacks
from .sticky_balance import Claim, balance
from .sticky_user_data import decode_generation, encode_generation


class CooperativeStickyAssignor:
    """Kafka's CooperativeStickyAssignor."""

    name = "cooperative-sticky"
    is_cooperative = True

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def user_data(self) -> bytes | None:
        return encode_generation(self._generation)

    def assign(
        self, partition_counts: Mapping[str, int], members: Members, partition_racks: PartitionRacks = NO_RACKS
    ) -> Assignments:
        claims = {member_id: _claim(member) for member_id, member in members.items()}
        owners: dict[TopicPartition, set[str]] = {}
        for member_id, claim in claims.items():
            for tp in claim.partitions:
                owners.setdefault(tp, set()).add(member_id)
        return {
            member_id: [tp for tp in partitions if owners.get(tp, set()) <= {member_id}]
            for member_id, partitions in balance(partition_counts, members, claims).items()
        }

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        self._generation = generation


def _claim(member: MemberSubscription) -> Claim:
    """Members before Kafka 3.5 send their generation in the user data."""
    told = member.generation != NO_GENERATION
    return Claim(member.owned, member.generation if told else decode_generation(member.user_data))
