"""`uniform` and `range`: one owner for each partition, even shares, few moves; and against Apache Kafka's assignors."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.java import compile_java, jars, run_java

from barnabas.server.coordinator.group.assignment import Assignment
from barnabas.server.coordinator.group.assignors import (
    ASSIGNORS,
    MemberSpec,
    assign_ranges,
    assign_uniformly,
    is_homogeneous,
    supported_assignors,
)

Counts = dict[UUID, int]
Targets = Mapping[str, Assignment]


def topic(number: int) -> UUID:
    return UUID(int=number)


def subscriber(name: str, *topics: int, instance_id: str | None = None) -> MemberSpec:
    return MemberSpec(name, instance_id, frozenset(map(topic, topics)), {})


def places(assignment: Assignment) -> set[tuple[UUID, int]]:
    return {(name, index) for name, partitions in assignment.items() for index in partitions}


def random_group(rng: random.Random, *, alike: bool, shrinks: bool = True) -> tuple[list[MemberSpec], Counts]:
    """Members as they may stand: with what an earlier assignment gave them, of topics that may be smaller by now."""
    counts = {topic(number): rng.randint(1, 9) for number in range(1, rng.randint(2, 6))}
    everything = sorted(counts)
    names = [f"m{number}" for number in range(rng.randint(1, 9))]
    same = frozenset(rng.sample(everything, rng.randint(1, len(everything))))
    has: dict[str, dict[UUID, frozenset[int]]] = {name: {} for name in names}
    for name, count in counts.items():
        for index in range(count + (rng.choice([0, 0, 2]) if shrinks else 0)):
            if rng.random() < 0.7:
                mine = has[rng.choice(names)]
                mine[name] = mine.get(name, frozenset()) | {index}
    subscribers = [
        MemberSpec(
            name,
            f"i{rng.random()}" if rng.random() < 0.3 else None,
            same if alike else frozenset(rng.sample(everything, rng.randint(0, len(everything)))),
            has[name],
        )
        for name in names
    ]
    return subscribers, {name: counts[name] for name in frozenset().union(*(one.topics for one in subscribers))}


def check_owners(subscribers: Sequence[MemberSpec], counts: Counts, targets: Targets) -> None:
    """Every partition that somebody wants has one owner, and that one wants it."""
    owned = [place for one in subscribers for place in places(targets.get(one.member_id, {}))]
    assert len(owned) == len(set(owned))
    assert set(owned) == {(name, index) for name, count in counts.items() for index in range(count)}
    for one in subscribers:
        assert targets.get(one.member_id, {}).keys() <= one.topics


def loads(targets: Targets, subscribers: Sequence[MemberSpec]) -> dict[str, int]:
    return {one.member_id: len(places(targets.get(one.member_id, {}))) for one in subscribers}


def kept(subscribers: Sequence[MemberSpec], targets: Targets) -> int:
    return sum(len(places(one.current) & places(targets.get(one.member_id, {}))) for one in subscribers)


def check_even(subscribers: Sequence[MemberSpec], targets: Targets) -> None:
    """Nobody has a partition that another subscriber of its topic should rather have."""
    load = loads(targets, subscribers)
    for one in subscribers:
        for name in targets.get(one.member_id, {}):
            least = min(load[other.member_id] for other in subscribers if name in other.topics)
            assert load[one.member_id] <= 1 + least


@given(st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=150, deadline=None)
def test_uniform_has_one_owner_even_shares_and_moves_nothing_without_need(rng: random.Random, alike: bool) -> None:
    subscribers, counts = random_group(rng, alike=alike)
    targets = assign_uniformly(subscribers, counts)
    check_owners(subscribers, counts, targets)
    check_even(subscribers, targets)
    if is_homogeneous(subscribers):
        shares = loads(targets, subscribers).values()
        assert max(shares) - min(shares) <= 1
    again = [one._replace(current=targets[one.member_id]) for one in subscribers]
    assert assign_uniformly(again, counts) == targets


@given(st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=150, deadline=None)
def test_range_has_one_owner_and_ranges(rng: random.Random, alike: bool) -> None:
    subscribers, counts = random_group(rng, alike=alike)
    targets = assign_ranges(subscribers, counts)
    check_owners(subscribers, counts, targets)
    for name in counts:
        shares = [sorted(targets[one.member_id].get(name, ())) for one in subscribers if name in one.topics]
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
        assert all(not share or share == list(range(share[0], share[-1] + 1)) for share in shares)


def test_a_newcomer_gets_its_share_and_the_others_keep_the_rest() -> None:
    counts = {topic(1): 6, topic(2): 6}
    members = [subscriber(name, 1, 2) for name in "abc"]
    targets = assign_uniformly(members, counts)
    more = [one._replace(current=targets[one.member_id]) for one in members] + [subscriber("d", 1, 2)]
    after = assign_uniformly(more, counts)
    assert set(loads(after, more).values()) == {3} and kept(more, after) == 9


def test_who_goes_leaves_what_it_has_to_the_others() -> None:
    counts = {topic(1): 7}
    members = [subscriber(name, 1) for name in "abc"]
    targets = assign_uniformly(members, counts)
    rest = [one._replace(current=targets[one.member_id]) for one in members[1:]]
    after = assign_uniformly(rest, counts)
    assert kept(rest, after) == sum(len(places(one.current)) for one in rest)
    assert sorted(loads(after, rest).values()) == [3, 4]


def test_range_puts_static_members_first_by_instance_id() -> None:
    members = [subscriber("a", 1), subscriber("b", 1, instance_id="z"), subscriber("c", 1, instance_id="y")]
    targets = assign_ranges(members, {topic(1): 4})
    assert {name: sorted(target[topic(1)]) for name, target in targets.items()} == {"c": [0, 1], "b": [2], "a": [3]}


def test_equal_topics_are_cut_alike_by_range() -> None:
    members = [subscriber(name, 1, 2) for name in "abc"]
    for target in assign_ranges(members, {topic(1): 8, topic(2): 8}).values():
        assert target[topic(1)] == target[topic(2)]


def test_a_thousand_members_join_one_after_the_other_quickly() -> None:
    counts = {topic(1): 1000}
    members: list[MemberSpec] = []
    for number in range(0, 1000, 100):
        members += [subscriber(f"m{number + more}", 1) for more in range(100)]
        targets = assign_uniformly(members, counts)
        members = [one._replace(current=targets[one.member_id]) for one in members]
    assert set(loads(targets, members).values()) == {1}


def test_names_that_are_not_offered_are_passed_over() -> None:
    long_name = "org.apache.kafka.coordinator.group.assignor.UniformAssignor"
    assert supported_assignors(["range", "own", long_name]) == ["range", "uniform"]
    assert supported_assignors(["own"]) == ["uniform"]
    assert set(supported_assignors(["uniform", "range"])) == set(ASSIGNORS)


def question(name: str, subscribers: Sequence[MemberSpec], counts: Counts) -> str:
    def written(assignment: Assignment) -> str:
        return ",".join(f"{one.int}:{index}" for one, index in sorted(places(assignment)))

    members = [
        f"{one.member_id};{one.instance_id or ''};{','.join(str(t.int) for t in one.topics)};{written(one.current)}"
        for one in subscribers
    ]
    return " ".join([name, ",".join(f"{one.int}:{count}" for one, count in counts.items()), *members])


def read(answer: str) -> dict[str, Assignment]:
    result: dict[str, Assignment] = {}
    for member in answer.split():
        name, _, text = member.partition(";")
        targets: dict[UUID, frozenset[int]] = {}
        for place in text.split(",") if text else ():
            number, _, index = place.partition(":")
            targets[topic(int(number))] = targets.get(topic(int(number)), frozenset()) | {int(index)}
        result[name] = targets
    return result


@pytest.mark.java
@pytest.mark.timeout(600)
def test_apache_kafkas_assignors_do_the_same() -> None:
    """Ranges are the same; shares are as even, and no more partitions change hands."""
    classpath = jars("org.apache.kafka:kafka-group-coordinator:4.4.0")
    classes = compile_java(Path(__file__).parent / "java", classpath)
    rng = random.Random(848)
    groups = [(*random_group(rng, alike=number % 2 == 0, shrinks=False), number % 2 == 0) for number in range(1500)]
    groups = [(subscribers, counts, alike) for subscribers, counts, alike in groups if counts]
    lines = [question(name, one, counts) for one, counts, _ in groups for name in ("range", "uniform")]
    result = run_java("AssignorOracle", [classes, *classpath], stdin="\n".join(lines) + "\n")
    assert result.returncode == 0, result.stderr[-2000:]
    answers = result.stdout.split("\n")
    kept_here = kept_there = 0
    for number, (subscribers, counts, alike) in enumerate(groups):
        ranges, theirs = read(answers[2 * number]), read(answers[2 * number + 1])
        assert {name: one for name, one in assign_ranges(subscribers, counts).items() if one} == {
            name: one for name, one in ranges.items() if one
        }
        ours = assign_uniformly(subscribers, counts)
        if alike:
            assert sorted(loads(ours, subscribers).values()) == sorted(loads(theirs, subscribers).values())
            assert kept(subscribers, ours) >= kept(subscribers, theirs)
        spread = [sum(load * load for load in loads(one, subscribers).values()) for one in (ours, theirs)]
        assert spread[0] <= spread[1] + len(subscribers)
        kept_here += kept(subscribers, ours)
        kept_there += kept(subscribers, theirs)
    assert kept_here >= kept_there
