"""The assignor of share groups: even numbers, no partition without a member, few moves; and Kafka's assignor."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.java import compile_java, jars, run_java
from tests.server.coordinator.group.test_assignors import Counts, Targets, loads, places, question, read, topic

from barnabas.server.coordinator.group.assignors import MemberSpec, is_homogeneous
from barnabas.server.coordinator.group.share.simple_assignor import assign_simply

Groups = tuple[list[MemberSpec], Counts]


def random_share_group(rng: random.Random, *, alike: bool) -> Groups:
    """Members with the target of an earlier assignment, after changes of members and subscriptions."""
    counts = {topic(number): rng.randint(1, 7) for number in range(1, rng.randint(2, 5))}
    names = [f"m{number}" for number in range(rng.randint(1, 12))]

    def subscriptions() -> list[frozenset[UUID]]:
        if alike:
            return [frozenset(rng.sample(sorted(counts), rng.randint(1, len(counts))))] * len(names)
        return [frozenset(rng.sample(sorted(counts), rng.randint(1, len(counts)))) for _ in names]

    before = [MemberSpec(name, None, topics, {}) for name, topics in zip(names, subscriptions(), strict=True)]
    before = rng.sample(before, rng.randint(0, len(before)))
    owned = assign_simply(before, partitions_of(counts))
    return [
        MemberSpec(name, None, topics, owned.get(name, {})) for name, topics in zip(names, subscriptions(), strict=True)
    ], counts


def partitions_of(counts: Counts) -> Mapping[UUID, frozenset[int]]:
    return {name: frozenset(range(count)) for name, count in counts.items()}


def sharing(targets: Targets) -> Counter[tuple[UUID, int]]:
    return Counter(place for assignment in targets.values() for place in places(assignment))


def check(members: Sequence[MemberSpec], counts: Counts, targets: Targets) -> None:
    """Each partition of a subscribed topic has a member, and equal subscribers have equal numbers."""
    shared = sharing(targets)
    for member in members:
        assert targets[member.member_id].keys() <= member.topics
    for name in frozenset().union(*(member.topics for member in members)):
        assert all(shared[name, index] for index in range(counts[name])), "a partition has no member"
    if is_homogeneous(members):
        sizes = loads(targets, members).values()
        assert max(sizes) - min(sizes) <= 1


@given(st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=300, deadline=None)
def test_all_partitions_have_members_in_even_numbers(rng: random.Random, alike: bool) -> None:
    members, counts = random_share_group(rng, alike=alike)
    targets = assign_simply(members, partitions_of(counts))
    check(members, counts, targets)
    again = [one._replace(current=targets[one.member_id]) for one in members]
    assert assign_simply(again, partitions_of(counts)) == targets


def test_more_members_than_partitions_share_them() -> None:
    members = [MemberSpec(f"m{number}", None, frozenset([topic(1)]), {}) for number in range(7)]
    targets = assign_simply(members, {topic(1): frozenset(range(3))})
    assert sorted(sharing(targets).values()) == [3, 3, 3]
    assert sorted(loads(targets, members).values()) == [1, 1, 1, 1, 1, 2, 2]


def test_only_assignable_partitions_are_assigned() -> None:
    members = [MemberSpec("a", None, frozenset([topic(1), topic(2)]), {topic(1): frozenset([0, 5])})]
    assert assign_simply(members, {topic(1): frozenset([5])}) == {"a": {topic(1): frozenset([5])}}
    assert assign_simply(members, {}) == {"a": {}}
    assert assign_simply([], {}) == {}


def test_thousands_of_members_are_assigned_quickly() -> None:
    members = [MemberSpec(f"m{number}", None, frozenset([topic(1)]), {}) for number in range(5000)]
    assignable = {topic(1): frozenset(range(64))}
    targets = assign_simply(members, assignable)
    less = [one._replace(current=targets[one.member_id]) for one in members[1:]]
    after = assign_simply(less, assignable)
    moved = sum(len(places(one.current) - places(after[one.member_id])) for one in less)
    assert moved < 200


@pytest.mark.java
@pytest.mark.timeout(600)
def test_apache_kafkas_assignor_has_the_same_numbers() -> None:
    """Over many groups as many partitions are assigned, as evenly, and no more of them move."""
    classpath = jars("org.apache.kafka:kafka-group-coordinator:4.4.0")
    classes = compile_java(Path(__file__).parent / "java", classpath)
    rng = random.Random(932)
    groups = [random_share_group(rng, alike=number % 2 == 0) for number in range(1500)]
    lines = [question("simple", members, counts) for members, counts in groups]
    result = run_java("SimpleAssignorOracle", [classes, *classpath], stdin="\n".join(lines) + "\n")
    assert result.returncode == 0, result.stderr[-2000:]
    sums = [Counter[str](), Counter[str]()]
    for (members, counts), answer in zip(groups, result.stdout.split("\n"), strict=False):
        # Kafka's assignor may leave topics in a target assignment that no member subscribes to any more.
        answered = read(answer)
        theirs = {
            one.member_id: {
                name: partitions for name, partitions in answered.get(one.member_id, {}).items() if name in one.topics
            }
            for one in members
        }
        answers: list[Targets] = [assign_simply(members, partitions_of(counts)), theirs]
        for targets, total in zip(answers, sums, strict=True):
            check(members, counts, targets)
            shared = sharing(targets)
            total["assigned"] += shared.total()
            total["unevenness"] += max(shared.values()) - min(shared.values())
            total["moved"] += sum(len(places(one.current) - places(targets[one.member_id])) for one in members)
    ours, kafkas = sums
    assert ours["assigned"] >= kafkas["assigned"], sums
    assert ours["unevenness"] <= kafkas["unevenness"], sums
    assert ours["moved"] <= kafkas["moved"] * 1.01, sums  # both depend on the order of equal choices
