"""One member on its way to its target: what it has to let go of, what it gets and when."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from tests.cases import in_one_test

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.server.coordinator.group.assignment import Assignment, overlap
from barnabas.server.coordinator.group.consumer_group import ConsumerGroup
from barnabas.server.coordinator.group.consumer_group_member import ConsumerGroupMember, MemberState
from barnabas.server.coordinator.group.current_assignment_builder import build_current_assignment

TOPIC, OTHER = UUID(int=1), UUID(int=2)


def some(*partitions: int, topic: UUID = TOPIC) -> Assignment:
    return {topic: frozenset(partitions)} if partitions else {}


def nobody(_topic: UUID, _partition: int) -> bool:
    return True


def everything_taken(_topic: UUID, _partition: int) -> bool:
    return False


def member(**fields: Any) -> ConsumerGroupMember:
    return replace(ConsumerGroupMember("m", epoch=5, previous_epoch=4), **fields)  # type: ignore[arg-type]


def test_nothing_to_do() -> None:
    there = member(assigned=some(1))
    assert build_current_assignment(there, 5, some(1), None, nobody) is there


def test_a_new_epoch_with_the_same_partitions() -> None:
    moved = build_current_assignment(member(assigned=some(1)), 6, some(1), None, nobody)
    assert (moved.state, moved.epoch, moved.previous_epoch, moved.assigned) == (MemberState.STABLE, 6, 5, some(1))


def test_free_partitions_come_at_once_others_when_they_are_free() -> None:
    waiting = build_current_assignment(member(assigned=some(1)), 6, some(1, 2, 3), None, lambda _, index: index == 2)
    assert (waiting.state, waiting.epoch) == (MemberState.UNRELEASED_PARTITIONS, 6)
    assert waiting.assigned == some(1, 2)
    assert build_current_assignment(waiting, 6, some(1, 2, 3), None, everything_taken) is waiting
    there = build_current_assignment(waiting, 6, some(1, 2, 3), None, nobody)
    assert (there.state, there.epoch, there.assigned) == (MemberState.STABLE, 6, some(1, 2, 3))


def test_it_lets_go_first_and_stays_in_its_epoch_until_it_says_so() -> None:
    asked = build_current_assignment(member(assigned=some(1, 2)), 6, some(2, 3), None, nobody)
    assert (asked.state, asked.epoch) == (MemberState.UNREVOKED_PARTITIONS, 5)
    assert (asked.assigned, asked.revoking) == (some(2), some(1))
    for owned in (None, some(1, 2), some(1)):
        assert build_current_assignment(asked, 7, some(3), owned, nobody) is asked
    there = build_current_assignment(asked, 6, some(2, 3), some(2), nobody)
    assert (there.state, there.epoch, there.assigned, there.revoking) == (MemberState.STABLE, 6, some(2, 3), {})


def test_having_let_go_it_may_have_to_let_go_of_more() -> None:
    asked = member(state=MemberState.UNREVOKED_PARTITIONS, assigned=some(2), revoking=some(1))
    again = build_current_assignment(asked, 7, some(3), some(2), nobody)
    assert (again.state, again.epoch) == (MemberState.UNREVOKED_PARTITIONS, 5)
    assert (again.assigned, again.revoking) == ({}, some(2))


def test_what_it_never_had_it_need_not_let_go_of() -> None:
    moved = build_current_assignment(member(assigned=some(1, 2)), 6, some(2), some(2), nobody)
    assert (moved.state, moved.epoch, moved.assigned) == (MemberState.STABLE, 6, some(2))


def test_a_state_of_the_future_is_fenced_unless_it_has_nothing() -> None:
    strange = member(state=MemberState.UNKNOWN, assigned=some(1))
    for owned in (None, some(1)):
        with pytest.raises(KafkaError) as fenced:
            build_current_assignment(strange, 6, some(1), owned, nobody)
        assert fenced.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert build_current_assignment(strange, 6, some(1), {}, nobody).state is MemberState.STABLE


def random_target(rng: random.Random, names: list[str]) -> dict[str, Assignment]:
    """Every partition is somebody's."""
    target: dict[str, dict[UUID, frozenset[int]]] = {name: {} for name in names}
    for topic in (TOPIC, OTHER):
        for partition in range(4):
            mine = target[rng.choice(names)]
            mine[topic] = mine.get(topic, frozenset()) | {partition}
    return dict(target)


@in_one_test("seed", range(40))
def test_however_targets_change_nobody_has_what_another_has_and_all_arrive(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"m{number}" for number in range(rng.randint(1, 5))]
    group = ConsumerGroup("g")
    owned: dict[str, Assignment] = {name: {} for name in names}
    for name in names:
        group.put_member(ConsumerGroupMember(name))
    epoch, target = 1, random_target(rng, names)

    def beat(name: str, *, says: bool) -> None:
        """A heartbeat; the client lets go of what it is not to have any more, and takes the rest only then."""
        now = group.members[name]
        then = build_current_assignment(now, epoch, target[name], owned[name] if says else None, group.is_free)
        group.put_member(then)
        kept = {topic: owned[name].get(topic, frozenset()) & parts for topic, parts in then.assigned.items()}
        owned[name] = then.assigned if not then.revoking else kept
        for one in names:
            for other in names:
                if one < other:
                    assert not overlap(owned[one], owned[other])
                    for mine in (group.members[one].assigned, group.members[one].revoking):
                        assert not overlap(mine, group.members[other].assigned)
                        assert not overlap(mine, group.members[other].revoking)

    for _ in range(60):
        if rng.random() < 0.2:
            epoch, target = epoch + 1, random_target(rng, names)
        beat(rng.choice(names), says=rng.random() < 0.7)
    for _ in range(5):
        for name in names:
            beat(name, says=True)
    assert all(group.members[name].has_reached(epoch) for name in names)
    assert owned == target
