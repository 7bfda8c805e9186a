"""`range`: of every topic a member receives consecutive partitions, with replicas in its rack if possible (KIP-881).

Kafka's RangeAssignor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, islice

from ...protocol.topic_partition import TopicPartition
from .assignor import NO_RACKS, Assignments, Members, PartitionRacks, StatelessAssignor, in_order


class RangeAssignor(StatelessAssignor):
    """Topics with the same partitions and subscribers have equal assignments, so their partitions can be joined."""

    name = "range"

    def assign(
        self, partition_counts: Mapping[str, int], members: Members, partition_racks: PartitionRacks = NO_RACKS
    ) -> Assignments:
        ordered = in_order(members)
        topics = [
            _Topic(
                name,
                {member_id: members[member_id].rack for member_id in ordered if name in members[member_id].topics},
                [partition_racks.get(TopicPartition(name, index), frozenset()) for index in range(count)],
            )
            for name in sorted({topic for member in members.values() for topic in member.topics})
            if (count := partition_counts.get(name, 0))
        ]
        if any(topic.racks_matter for topic in topics):
            _match_racks(topics)
        for topic in topics:
            topic.deal()
        return {
            member_id: [TopicPartition(topic.name, index) for topic in topics for index in topic.share_of(member_id)]
            for member_id in members
        }


class _Topic:
    """The present assignment of a topic. Every member receives `each` partitions; some members, in order, one more."""

    def __init__(self, name: str, subscribers: dict[str, str | None], replica_racks: Sequence[frozenset[str]]) -> None:
        self.name = name
        self.subscribers = subscribers
        """Members in order, with their racks."""
        self.count = len(replica_racks)
        self.given: dict[str, list[int]] = {member_id: [] for member_id in subscribers}
        self._replica_racks = replica_racks
        self._left = dict.fromkeys(range(self.count))
        self._each, self._extra = divmod(self.count, len(subscribers))

    @property
    def racks_matter(self) -> bool:
        """Return whether a member is in a rack with replicas, and not every partition has replicas in all racks."""
        racks = frozenset().union(*self._replica_racks)
        theirs = {rack for rack in self.subscribers.values() if rack}
        return not theirs.isdisjoint(racks) and any(one != racks for one in self._replica_racks)

    def matches(self, member_id: str, index: int) -> bool:
        """Return whether a partition has a replica in the member's rack; always true for a member without one."""
        rack = self.subscribers[member_id]
        return not rack or rack in self._replica_racks[index]

    def room(self, member_id: str) -> int:
        """Return the number of further partitions for a member."""
        return max(self._each + (self._extra > 0) - len(self.given[member_id]), 0)

    def give(self, member_id: str, indexes: Sequence[int]) -> None:
        self.given[member_id] += indexes
        self._extra -= bool(indexes) and len(self.given[member_id]) > self._each
        for index in indexes:
            del self._left[index]

    def share_of(self, member_id: str) -> list[int]:
        """Return the partitions of a member, none without a subscription."""
        return sorted(self.given.get(member_id, ()))

    def deal(self, suits: Callable[[str, int], bool] | None = None) -> None:
        """Assign the remaining partitions to the members in turn, by capacity and rack."""
        for member_id in self.subscribers:
            suitable = (index for index in self._left if suits is None or suits(member_id, index))
            self.give(member_id, list(islice(suitable, self.room(member_id))))


def _match_racks(topics: Sequence[_Topic]) -> None:
    """Assign partitions to members in the racks of their replicas. Unmatched partitions remain."""

    def kind(topic: _Topic) -> tuple[list[str], int]:
        return sorted(topic.subscribers), topic.count

    for (_, count), alike in groupby(sorted(topics, key=kind), key=kind):
        together = list(alike)
        if len(together) > 1:
            _match_together(together, count)
        elif together[0].racks_matter:
            together[0].deal(together[0].matches)


def _match_together(topics: Sequence[_Topic], count: int) -> None:
    """Do the same for topics with equal assignments: a partition of all of them is assigned to one member or
    remains.
    """
    lacking = list(topics[0].subscribers)
    for index in range(count):
        for member_id in lacking:
            if all(topic.matches(member_id, index) and topic.room(member_id) for topic in topics):
                for topic in topics:
                    topic.give(member_id, [index])
                if not any(topic.room(member_id) for topic in topics):
                    lacking.remove(member_id)
                break
