"""The balance of both sticky assignors: as even as possible, with as few moved partitions as possible.

After Kafka's AbstractStickyAssignor (KIP-54, KIP-429): one algorithm for members with equal subscriptions, which is
exact and linear, and one for all other groups, which moves single partitions as long as that improves the balance.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...protocol.topic_partition import TopicPartition
from .assignor import NO_GENERATION, Assignments, Members, partitions_of


@dataclass(frozen=True, slots=True)
class Claim:
    """The partitions that a member claims to own, and their generation."""

    partitions: Sequence[TopicPartition]
    generation: int


NO_CLAIM = Claim((), NO_GENERATION)


def balance(partition_counts: Mapping[str, int], members: Members, claims: Mapping[str, Claim]) -> Assignments:
    """Assign all partitions of existing topics to the members subscribed to them."""
    owned = valid_claims(partition_counts, members, claims)
    wanted = {member.topics for member in members.values()}
    if len(wanted) == 1:
        return _balance_alike(partitions_of(partition_counts, *wanted), owned)
    return _MixedSubscriptions(partition_counts, members, owned).balance()


def valid_claims(partition_counts: Mapping[str, int], members: Members, claims: Mapping[str, Claim]) -> Assignments:
    """Return the partitions that each member owns: claims of the newest generation have precedence; equal claims are
    dropped.
    """
    owners: dict[TopicPartition, tuple[int, str | None]] = {}
    for member_id in sorted(claims):
        claim = claims[member_id]
        for tp in claim.partitions:
            if tp.partition >= partition_counts.get(tp.topic, 0) or tp.topic not in members[member_id].topics:
                continue
            generation, _ = owners.get(tp, (-2, None))
            if claim.generation > generation:
                owners[tp] = (claim.generation, member_id)
            elif claim.generation == generation:
                owners[tp] = (generation, None)
    owned: Assignments = {member_id: [] for member_id in sorted(members)}
    for tp, (_, owner) in sorted(owners.items()):
        if owner is not None:
            owned[owner].append(tp)
    return owned


def _balance_alike(partitions: list[TopicPartition], owned: Assignments) -> Assignments:
    """Assign equal numbers, and one more to as many members as the remainder."""
    least, left_over = divmod(len(partitions), len(owned))
    given: Assignments = {}
    for member_id, own in owned.items():
        has_more = len(own) > least and left_over > 0
        left_over -= has_more
        given[member_id] = own[: least + has_more]
    taken = {tp for own in given.values() for tp in own}
    free = deque(tp for tp in partitions if tp not in taken)
    below = deque(member_id for member_id, own in given.items() if len(own) < least)
    while below:
        member_id = below.popleft()
        given[member_id].append(free.popleft())
        if len(given[member_id]) < least:
            below.append(member_id)
    for own in given.values():
        if free and len(own) == least:
            own.append(free.popleft())
    return given


class _MixedSubscriptions:
    """Assign with different subscriptions: the member with the fewest partitions first, then balance by single
    moves.
    """

    def __init__(self, partition_counts: Mapping[str, int], members: Members, owned: Assignments) -> None:
        self._given = {member_id: set(own) for member_id, own in owned.items()}
        self._before = {tp: member_id for member_id, own in owned.items() for tp in own}
        self._owner = dict(self._before)
        topics = {topic for member in members.values() for topic in member.topics}
        self._subscribers = {
            topic: [member_id for member_id in sorted(members) if topic in members[member_id].topics]
            for topic in topics
        }
        self._partitions = partitions_of(partition_counts, topics)

    def balance(self) -> Assignments:
        by_choice = sorted(self._partitions, key=lambda tp: (len(self._subscribers[tp.topic]), tp))
        for tp in by_choice:
            if tp not in self._owner:
                self._give(tp, self._poorest(tp))
        while self._even_out(by_choice):
            continue
        self._bring_home()
        return {member_id: sorted(given) for member_id, given in self._given.items()}

    def _even_out(self, partitions: list[TopicPartition]) -> bool:
        """Move partitions that balance two members; partitions that have already moved are preferred."""
        moved = False
        for tp in sorted(partitions, key=lambda tp: self._owner[tp] == self._before.get(tp)):
            poorest = self._poorest(tp)
            if len(self._given[self._owner[tp]]) > len(self._given[poorest]) + 1:
                self._give(tp, poorest)
                moved = True
        return moved

    def _bring_home(self) -> None:
        """Undo exchanges of two partitions of one topic."""
        away: dict[tuple[str, str, str], list[TopicPartition]] = {}
        for tp, home in self._before.items():
            host = self._owner[tp]
            if host == home:
                continue
            back = away.get((tp.topic, host, home))
            if back:
                self._give(back.pop(), host)
                self._give(tp, home)
            else:
                away.setdefault((tp.topic, home, host), []).append(tp)

    def _poorest(self, tp: TopicPartition) -> str:
        """Return a member with the fewest partitions among the candidates; the former owner if it is one of them."""
        subscribers = self._subscribers[tp.topic]
        least = min(len(self._given[member_id]) for member_id in subscribers)
        home = self._before.get(tp)
        if home is not None and len(self._given[home]) == least:
            return home
        return next(member_id for member_id in subscribers if len(self._given[member_id]) == least)

    def _give(self, tp: TopicPartition, member_id: str) -> None:
        owner = self._owner.get(tp)
        if owner is not None:
            self._given[owner].discard(tp)
        self._owner[tp] = member_id
        self._given[member_id].add(tp)
