"""Kafka's SimpleAssignor: the assignor of share groups. A pure function.

Each partition has the same number of members, or one less, and each member the same number of partitions, or one less.
Members keep as many of their partitions as these numbers permit. If all members have the same subscription, the
partitions of all topics are distributed together, otherwise the partitions of each topic among its subscribers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence, Set
from uuid import UUID

from ..assignment import NOTHING, Assignment
from ..assignors import MemberSpec, is_homogeneous

SIMPLE_ASSIGNOR = "simple"
"""The name of the assignor in ShareGroupDescribe."""

TopicIdPartitionKey = tuple[UUID, int]


def assign_simply(members: Sequence[MemberSpec], assignable: Mapping[UUID, Set[int]]) -> dict[str, Assignment]:
    """Return the target assignment of each member.

    `assignable` has the partitions of each topic that members may read; other topics are not assigned.
    """
    if not members:
        return {}
    owned = [_partitions(member.current) for member in members]
    if is_homogeneous(members):
        partitions = [
            partition for topic_id in sorted(members[0].topics) for partition in _of_topic(topic_id, assignable)
        ]
        shares = _distribute(partitions, owned)
    else:
        shares = [set() for _ in members]
        for topic_id in sorted(frozenset().union(*(member.topics for member in members))):
            numbers = [number for number, member in enumerate(members) if topic_id in member.topics]
            partitions = _of_topic(topic_id, assignable)
            for number, share in zip(
                numbers, _distribute(partitions, [owned[number] for number in numbers]), strict=True
            ):
                shares[number] |= share
    return {
        member.member_id: _to_assignment(share, member.current) for member, share in zip(members, shares, strict=True)
    }


def _partitions(assignment: Assignment) -> set[TopicIdPartitionKey]:
    return {(topic_id, partition) for topic_id, partitions in assignment.items() for partition in partitions}


def _of_topic(topic_id: UUID, assignable: Mapping[UUID, Set[int]]) -> list[TopicIdPartitionKey]:
    return [(topic_id, partition) for partition in sorted(assignable.get(topic_id, ()))]


def _to_assignment(share: set[TopicIdPartitionKey], former: Assignment) -> Assignment:
    result: dict[UUID, set[int]] = {}
    for topic_id, partition in share:
        result.setdefault(topic_id, set()).add(partition)
    # An unchanged assignment keeps its object, which the member and its target assignment have in common.
    return former if result == former else {topic_id: frozenset(found) for topic_id, found in result.items()} or NOTHING


def _distribute(
    partitions: Sequence[TopicIdPartitionKey], owned: Sequence[set[TopicIdPartitionKey]]
) -> list[set[TopicIdPartitionKey]]:
    """Return the partitions of each member; `owned` has the former partitions of each member."""
    count = len(owned)
    if not partitions:
        return [set() for _ in range(count)]
    sharing = -(-count // len(partitions))
    total = sharing * len(partitions)
    wanted = [-(-total * (number + 1) // count) + (-total * number // count) for number in range(count)]
    members_of = dict.fromkeys(partitions, 0)
    result: list[set[TopicIdPartitionKey]] = []
    for number, former in enumerate(owned):
        kept = former & members_of.keys()
        if len(kept) > wanted[number]:
            kept = set(sorted(kept)[: wanted[number]])
        for partition in kept:
            members_of[partition] += 1
        result.append(kept)
    for mine in result:
        for partition in [partition for partition in mine if members_of[partition] > sharing]:
            members_of[partition] -= 1
            mine.remove(partition)
    unfilled = deque(number for number in range(count) if len(result[number]) < wanted[number])
    for partition in partitions:
        missing = sharing - members_of[partition]
        # One round: no member can get a partition twice.
        for _ in range(len(unfilled)):
            if not missing:
                break
            number = unfilled.popleft()
            mine = result[number]
            if partition not in mine:
                mine.add(partition)
                missing -= 1
            if len(mine) < wanted[number]:
                unfilled.append(number)
    return result
