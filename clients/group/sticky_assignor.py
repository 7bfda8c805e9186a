"""`sticky`: balanced, and members keep partitions; it is eager, so they are in the user data (KIP-54, KIP-341)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...protocol.topic_partition import TopicPartition
from .assignor import NO_RACKS, Assignments, Members, PartitionRacks
from .sticky_balance import NO_CLAIM, Claim, balance
from .sticky_user_data import decode_claim, encode_claim


class StickyAssignor:
    """Kafka's StickyAssignor."""

    name = "sticky"
    is_cooperative = False

    def __init__(self) -> None:
        self._given: Claim = NO_CLAIM

    def user_data(self) -> bytes | None:
        return encode_claim(self._given) if self._given is not NO_CLAIM else None

    def assign(
        self, partition_counts: Mapping[str, int], members: Members, partition_racks: PartitionRacks = NO_RACKS
    ) -> Assignments:
        claims = {member_id: decode_claim(member.user_data) for member_id, member in members.items()}
        return balance(partition_counts, members, claims)

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        self._given = Claim(tuple(partitions), generation)
