"""The server-side assignors of consumer groups (`group.consumer.assignors`; KIP-848's `group.remote.assignor`).

`range` cuts each topic's partitions into ranges, so that equal topics are cut equally (Kafka: RangeAssignor). `uniform`
gives each member the same number of partitions and moves as few as possible (Kafka: UniformAssignor): if all members
have the same subscription, their shares differ by one at most; otherwise no partition can move to another subscriber of
its topic and make the two members' shares more equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from .assignment import NOTHING, Assignment


class MemberSpec(NamedTuple):
    """The topics of a member, and its last target assignment."""

    member_id: str
    instance_id: str | None
    topics: frozenset[UUID]
    current: Assignment


PartitionCounts = Mapping[UUID, int]
"""The number of partitions of each subscribed topic; subscriptions have no topics that do not exist."""


def is_homogeneous(subscribers: Sequence[MemberSpec]) -> bool:
    """Return whether all members have the same subscription (Kafka: SubscriptionType.HOMOGENEOUS)."""
    return len({subscriber.topics for subscriber in subscribers}) <= 1


def assign_ranges(subscribers: Sequence[MemberSpec], counts: PartitionCounts) -> dict[str, Assignment]:
    """Assign ranges; static members first, by instance id, so that they keep theirs when dynamic members change."""
    ordered = sorted(subscribers, key=_range_order)
    takers: dict[UUID, list[str]] = {}
    for subscriber in ordered:
        for topic in subscriber.topics:
            takers.setdefault(topic, []).append(subscriber.member_id)
    result: dict[str, dict[UUID, frozenset[int]]] = {subscriber.member_id: {} for subscriber in ordered}
    for topic, members in takers.items():
        share, extra = divmod(counts[topic], len(members))
        start = 0
        for number, member_id in enumerate(members):
            end = start + share + (number < extra)
            if start == end:
                break
            result[member_id][topic] = frozenset(range(start, end))
            start = end
    return dict(result)


def _range_order(subscriber: MemberSpec) -> tuple[bool, str]:
    if subscriber.instance_id is not None:
        return False, subscriber.instance_id
    return True, subscriber.member_id


MAX_ROUNDS = 16
"""The limit on the rounds of balancing over all topics; nearly always two are enough."""


def assign_uniformly(subscribers: Sequence[MemberSpec], counts: PartitionCounts) -> dict[str, Assignment]:
    """Assign each partition of the subscribed topics, and move as few as possible."""
    if not subscribers:
        return {}
    kept = _kept(subscribers, counts)
    if is_homogeneous(subscribers):
        return _assign_equal_shares(subscribers, counts, kept)
    return _HeterogeneousAssignment(subscribers, counts, kept).result()


def _kept(subscribers: Sequence[MemberSpec], counts: PartitionCounts) -> list[Assignment]:
    """Return the partitions that each member keeps: they exist, are subscribed and have no other owner."""
    taken: dict[UUID, set[int]] = {}
    result = []
    for subscriber in subscribers:
        kept: dict[UUID, frozenset[int]] = {}
        for topic, partitions in subscriber.current.items():
            if topic not in subscriber.topics:
                continue
            others = taken.setdefault(topic, set())
            if max(partitions) >= counts[topic] or not others.isdisjoint(partitions):
                partitions = frozenset(one for one in partitions if one < counts[topic] and one not in others)
            if partitions:
                kept[topic] = partitions
                others |= partitions
        result.append(subscriber.current if kept == subscriber.current else kept)
    return result


def _unassigned(counts: PartitionCounts, kept: Sequence[Assignment]) -> Iterator[tuple[UUID, int]]:
    taken: dict[UUID, set[int]] = {topic: set() for topic in counts}
    for assignment in kept:
        for topic, partitions in assignment.items():
            taken[topic] |= partitions
    for topic, count in counts.items():
        if len(taken[topic]) < count:
            yield from ((topic, partition) for partition in range(count) if partition not in taken[topic])


def _assign_equal_shares(
    subscribers: Sequence[MemberSpec], counts: PartitionCounts, kept: Sequence[Assignment]
) -> dict[str, Assignment]:
    """Assign equal shares: move the surplus of larger shares to members with smaller shares."""
    wanted = {topic: counts[topic] for topic in sorted(subscribers[0].topics)}
    share, extras = divmod(sum(wanted.values()), len(subscribers))
    sizes = [sum(map(len, assignment.values())) for assignment in kept]
    result = list(kept)
    for number, size in enumerate(sizes):
        if size > share:
            # Members that have more partitions keep the larger shares.
            limit = share + (extras > 0)
            extras -= extras > 0
            if size > limit:
                result[number], sizes[number] = _take_evenly(kept[number], limit), limit
    rest = _unassigned(wanted, result)
    for number, size in enumerate(sizes):
        if size <= share:
            goal = share + (extras > 0)
            extras -= extras > 0
            if size < goal:
                result[number] = _with(result[number], [next(rest) for _ in range(goal - size)])
    return {subscriber.member_id: result[number] for number, subscriber in enumerate(subscribers)}


def _take_evenly(assignment: Assignment, limit: int) -> Assignment:
    """Return `limit` of the partitions, evenly from all topics."""
    queues = [iter(sorted(partitions)) for _, partitions in sorted(assignment.items())]
    topics = sorted(assignment)
    result: dict[UUID, list[int]] = {}
    while limit:
        for topic, queue in zip(topics, queues, strict=True):
            partition = next(queue, None)
            if partition is not None and limit:
                result.setdefault(topic, []).append(partition)
                limit -= 1
    return {topic: frozenset(partitions) for topic, partitions in result.items()}


def _with(assignment: Assignment, more: Sequence[tuple[UUID, int]]) -> Assignment:
    result = {topic: set(partitions) for topic, partitions in assignment.items()}
    for topic, partition in more:
        result.setdefault(topic, set()).add(partition)
    return {topic: frozenset(partitions) for topic, partitions in result.items()}


class _HeterogeneousAssignment:
    """The uniform assignment of members with different subscriptions: a partition moves among subscribers of its topic.

    Kafka: UniformHeterogeneousAssignmentBuilder.
    """

    def __init__(
        self,
        subscribers: Sequence[MemberSpec],
        counts: PartitionCounts,
        kept: Sequence[Assignment],
    ) -> None:
        self._subscribers = subscribers
        self._former = kept
        self._owned: list[dict[UUID, set[int]]] = [
            {topic: set(partitions) for topic, partitions in assignment.items()} for assignment in kept
        ]
        self._loads = [sum(map(len, assignment.values())) for assignment in kept]
        self._takers: dict[UUID, list[int]] = {}
        for number, subscriber in enumerate(subscribers):
            for topic in subscriber.topics:
                self._takers.setdefault(topic, []).append(number)
        # Topics with the fewest subscribers first: their partitions have the least choice.
        self._topics = sorted(self._takers, key=lambda topic: (len(self._takers[topic]), topic))
        self._counts = {topic: counts[topic] for topic in self._topics}

    def result(self) -> dict[str, Assignment]:
        """Assign the unassigned partitions, then balance the loads."""
        rest: dict[UUID, list[int]] = {}
        for topic, partition in _unassigned(self._counts, self._former):
            rest.setdefault(topic, []).append(partition)
        for topic in self._topics:
            self._assign_to_least_loaded(topic, rest.get(topic, ()))
        for _ in range(MAX_ROUNDS):
            if not sum(self._balance(topic) for topic in self._topics):
                break
        return {subscriber.member_id: self._frozen(number) for number, subscriber in enumerate(self._subscribers)}

    def _frozen(self, number: int) -> Assignment:
        owned = {topic: frozenset(partitions) for topic, partitions in self._owned[number].items() if partitions}
        former = self._former[number]
        return former if owned == former else owned or NOTHING

    def _assign_to_least_loaded(self, topic: UUID, partitions: Sequence[int]) -> None:
        if not partitions:
            return
        heap = [(self._loads[number], number) for number in self._takers[topic]]
        heapify(heap)
        for partition in partitions:
            load, number = heappop(heap)
            self._give(topic, partition, number)
            heappush(heap, (load + 1, number))

    def _give(self, topic: UUID, partition: int, number: int) -> None:
        self._owned[number].setdefault(topic, set()).add(partition)
        self._loads[number] += 1

    def _balance(self, topic: UUID) -> int:
        """Move partitions of a topic from the most to the least loaded members; return the number of moves."""
        takers, loads = self._takers[topic], self._loads
        least_loaded = [(loads[number], number) for number in takers]
        most_loaded = [(-loads[number], number) for number in takers if self._owned[number].get(topic)]
        heapify(least_loaded)
        heapify(most_loaded)
        moved = 0
        while most_loaded:
            load, giver = heappop(most_loaded)
            if -load != loads[giver] or not self._owned[giver][topic]:
                continue
            while least_loaded[0][0] != loads[least_loaded[0][1]]:
                heappop(least_loaded)
            taker = least_loaded[0][1]
            if loads[giver] - loads[taker] <= 1:
                break
            partition = max(self._owned[giver][topic])
            self._owned[giver][topic].remove(partition)
            loads[giver] -= 1
            self._give(topic, partition, taker)
            moved += 1
            for number in (giver, taker):
                heappush(least_loaded, (loads[number], number))
                heappush(most_loaded, (-loads[number], number))
        return moved


Assign = Callable[[Sequence[MemberSpec], PartitionCounts], dict[str, Assignment]]

ASSIGNORS: Mapping[str, Assign] = MappingProxyType({"uniform": assign_uniformly, "range": assign_ranges})
"""The assignors by name."""

# Kafka's class names in the setting are synonyms.
_CLASS_NAMES = MappingProxyType(
    {
        "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
        "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
    }
)


def supported_assignors(setting: Sequence[str]) -> list[str]:
    """Return the names of the known assignors in the setting, in its order: the first is the default."""
    names = [_CLASS_NAMES.get(name, name) for name in setting]
    return [name for name in names if name in ASSIGNORS] or ["uniform"]
