"""`range`: of every topic a member gets one run of partitions (Kafka's RangeAssignor, without racks)."""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.topic_partition import TopicPartition
from .assignor import Assignments, Members, StatelessAssignor, in_order


class RangeAssignor(StatelessAssignor):
    """Topics with the same partitions and subscribers fall the same way, so that their partitions can be joined."""

    name = "range"

    def assign(self, partition_counts: Mapping[str, int], members: Members) -> Assignments:
        given: Assignments = {member_id: [] for member_id in members}
        ordered = in_order(members)
        for topic in sorted({topic for member in members.values() for topic in member.topics}):
            subscribers = [member_id for member_id in ordered if topic in members[member_id].topics]
            each, extra = divmod(partition_counts.get(topic, 0), len(subscribers))
            first = 0
            for number, member_id in enumerate(subscribers):
                end = first + each + (number < extra)
                given[member_id] += [TopicPartition(topic, index) for index in range(first, end)]
                first = end
        return given
