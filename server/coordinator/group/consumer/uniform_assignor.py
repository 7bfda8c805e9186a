"""`uniform`: as many partitions for each member as for any other, moving as few as that takes (Kafka: UniformAssignor).

If all members want the same topics, their shares differ by one at most. Otherwise no partition can go over to another
of its topic's subscribers and leave the two more alike than they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from uuid import UUID

from .assignment import NOTHING, Assignment
from .subscriber import PartitionCounts, Subscriber, are_alike

MOST_ROUNDS = 16
"""Of balancing topic after topic, which ends by itself almost always after two."""


def assign_uniformly(subscribers: Sequence[Subscriber], counts: PartitionCounts) -> dict[str, Assignment]:
    """An assignment of every partition that somebody wants."""
    if not subscribers:
        return {}
    kept = _kept(subscribers, counts)
    if are_alike(subscribers):
        return _level(subscribers, counts, kept)
    return _Balance(subscribers, counts, kept).result()


def _kept(subscribers: Sequence[Subscriber], counts: PartitionCounts) -> list[Assignment]:
    """What each member keeps: partitions that still exist, that it still wants and nobody else has."""
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


def _level(
    subscribers: Sequence[Subscriber], counts: PartitionCounts, kept: Sequence[Assignment]
) -> dict[str, Assignment]:
    """Equal shares: members with more give up the surplus, members with less get it."""
    wanted = {topic: counts[topic] for topic in sorted(subscribers[0].topics)}
    share, extras = divmod(sum(wanted.values()), len(subscribers))
    sizes = [sum(map(len, assignment.values())) for assignment in kept]
    result = list(kept)
    for number, size in enumerate(sizes):
        if size > share:
            # The larger shares are for those who have them already.
            limit = share + (extras > 0)
            extras -= extras > 0
            if size > limit:
                result[number], sizes[number] = _first(kept[number], limit), limit
    rest = _unassigned(wanted, result)
    for number, size in enumerate(sizes):
        if size <= share:
            goal = share + (extras > 0)
            extras -= extras > 0
            if size < goal:
                result[number] = _with(result[number], [next(rest) for _ in range(goal - size)])
    return {subscriber.member_id: result[number] for number, subscriber in enumerate(subscribers)}


def _first(assignment: Assignment, limit: int) -> Assignment:
    """So many of the partitions, evenly from all topics."""
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


class _Balance:
    """Members who want different topics: whatever is moved, only subscribers of its topic may get it."""

    def __init__(self, subscribers: Sequence[Subscriber], counts: PartitionCounts, kept: Sequence[Assignment]) -> None:
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
        # Whoever has the least choice goes first.
        self._topics = sorted(self._takers, key=lambda topic: (len(self._takers[topic]), topic))
        self._counts = {topic: counts[topic] for topic in self._topics}

    def result(self) -> dict[str, Assignment]:
        """Hand out what nobody has, then even the loads out."""
        rest: dict[UUID, list[int]] = {}
        for topic, partition in _unassigned(self._counts, self._former):
            rest.setdefault(topic, []).append(partition)
        for topic in self._topics:
            self._hand_out(topic, rest.get(topic, ()))
        for _ in range(MOST_ROUNDS):
            if not sum(self._even_out(topic) for topic in self._topics):
                break
        return {subscriber.member_id: self._frozen(number) for number, subscriber in enumerate(self._subscribers)}

    def _frozen(self, number: int) -> Assignment:
        owned = {topic: frozenset(partitions) for topic, partitions in self._owned[number].items() if partitions}
        former = self._former[number]
        return former if owned == former else owned or NOTHING

    def _hand_out(self, topic: UUID, partitions: Sequence[int]) -> None:
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

    def _even_out(self, topic: UUID) -> int:
        """Move partitions of a topic from those who have most to those who have least; returns how many."""
        takers, loads = self._takers[topic], self._loads
        poorest = [(loads[number], number) for number in takers]
        richest = [(-loads[number], number) for number in takers if self._owned[number].get(topic)]
        heapify(poorest)
        heapify(richest)
        moved = 0
        while richest:
            load, giver = heappop(richest)
            if -load != loads[giver] or not self._owned[giver][topic]:
                continue
            while poorest[0][0] != loads[poorest[0][1]]:
                heappop(poorest)
            taker = poorest[0][1]
            if loads[giver] - loads[taker] <= 1:
                break
            partition = max(self._owned[giver][topic])
            self._owned[giver][topic].remove(partition)
            loads[giver] -= 1
            self._give(topic, partition, taker)
            moved += 1
            for number in (giver, taker):
                heappush(poorest, (loads[number], number))
                heappush(richest, (-loads[number], number))
        return moved
