"""`roundrobin`: all partitions of all topics are assigned in turn (Kafka's RoundRobinAssignor)."""

from __future__ import annotations

from collections.abc import Mapping

from .assignor import NO_RACKS, Assignments, Members, PartitionRacks, StatelessAssignor, in_order, partitions_of


class RoundRobinAssignor(StatelessAssignor):
    """Kafka's RoundRobinAssignor: skips members without a subscription to the partition's topic."""

    name = "roundrobin"

    def assign(
        self, partition_counts: Mapping[str, int], members: Members, partition_racks: PartitionRacks = NO_RACKS
    ) -> Assignments:
        given: Assignments = {member_id: [] for member_id in members}
        ordered = in_order(members)
        turn = 0
        for tp in partitions_of(partition_counts, {topic for m in members.values() for topic in m.topics}):
            while tp.topic not in members[ordered[turn]].topics:
                turn = (turn + 1) % len(ordered)
            given[ordered[turn]].append(tp)
            turn = (turn + 1) % len(ordered)
        return given
