"""`range`: each topic's partitions in ranges, so that equal topics are cut alike (Kafka: RangeAssignor)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from .assignment import Assignment
from .subscriber import PartitionCounts, Subscriber


def assign_ranges(subscribers: Sequence[Subscriber], counts: PartitionCounts) -> dict[str, Assignment]:
    """Static members come first, by instance id, so that they keep their ranges when others come and go."""
    ordered = sorted(subscribers, key=_place)
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


def _place(subscriber: Subscriber) -> tuple[bool, str]:
    if subscriber.instance_id is not None:
        return False, subscriber.instance_id
    return True, subscriber.member_id
