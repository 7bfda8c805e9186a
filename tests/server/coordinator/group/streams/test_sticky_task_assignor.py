"""`sticky`: each active task at one member, even shares, few moves, standby tasks elsewhere; the same as Kafka's."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.java import compile_java, jars, run_java

from barnabas.server.coordinator.group.streams.sticky_task_assignor import MemberAssignmentState as Member
from barnabas.server.coordinator.group.streams.sticky_task_assignor import SubtopologySpec, assign
from barnabas.server.coordinator.group.streams.tasks import Tasks, TasksTuple, iterate_tasks

Subtopologies = dict[str, SubtopologySpec]


def by_subtopology(tasks: set[tuple[str, int]]) -> Tasks:
    names = {name for name, _ in tasks}
    return {name: frozenset(partition for other, partition in tasks if other == name) for name in names}


def random_case(rng: random.Random) -> tuple[list[Member], Subtopologies, int]:
    """Members with tasks of an earlier assignment, some of which no longer exist, and with state on their disks.

    The ids are single characters whose codes have the low bits 0, 1, 2 and so on, and there are no more processes than
    members: java.util.HashMap iterates over them in this order, as this broker does.
    """
    subtopologies = {
        str(number): SubtopologySpec(rng.randint(1, 8), rng.random() < 0.6) for number in range(rng.randint(1, 4))
    }
    names = "@ABCDEFGHI"[: rng.randint(1, 10)]
    processes = "`abcdefghi"[: rng.randint(1, len(names))]
    process_of = {name: rng.choice(processes) for name in names}
    active: dict[str, set[tuple[str, int]]] = {name: set() for name in names}
    standby: dict[str, set[tuple[str, int]]] = {name: set() for name in names}
    offsets: dict[str, dict[str, dict[int, int]]] = {name: {} for name in names}
    for subtopology, (count, _) in subtopologies.items():
        for partition in range(count + rng.choice([0, 0, 1])):
            if rng.random() < 0.7:
                active[rng.choice(names)].add((subtopology, partition))
            for _ in range(rng.randint(0, 2)):
                standby[rng.choice(names)].add((subtopology, partition))
            for _ in range(rng.choice([0, 0, 1, 3])):
                offsets[rng.choice(names)].setdefault(subtopology, {})[partition] = rng.randint(0, 3)
    members = [
        Member(name, process_of[name], by_subtopology(active[name]), by_subtopology(standby[name]), offsets[name])
        for name in names
    ]
    return members, subtopologies, rng.randint(0, 3)


def check_assignment(
    members: Sequence[Member],
    subtopologies: Mapping[str, SubtopologySpec],
    standby_replicas: int,
    targets: Mapping[str, TasksTuple],
) -> None:
    every = {(name, partition) for name, (count, _) in subtopologies.items() for partition in range(count)}
    active = Counter(task for target in targets.values() for task in iterate_tasks(target.active))
    assert active == Counter(dict.fromkeys(every, 1))
    processes = len({member.process_id for member in members})
    standby = Counter(task for target in targets.values() for task in iterate_tasks(target.standby))
    stateful = {task for task in every if subtopologies[task[0]].is_stateful}
    replicas = min(standby_replicas, processes - 1)
    assert standby == Counter(dict.fromkeys(stateful, replicas) if replicas else {})
    held: set[tuple[str, str, int]] = set()
    for member in members:
        target = targets[member.member_id]
        for task in (*iterate_tasks(target.active), *iterate_tasks(target.standby)):
            assert (member.process_id, *task) not in held, "a process has a task twice"
            held.add((member.process_id, *task))


@given(st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_each_task_is_active_at_one_member_and_standby_at_other_processes(rng: random.Random) -> None:
    members, subtopologies, standby_replicas = random_case(rng)
    targets = assign(members, subtopologies, standby_replicas)
    check_assignment(members, subtopologies, standby_replicas, targets)


def test_members_keep_their_active_tasks_when_a_member_joins() -> None:
    subtopologies = {"0": SubtopologySpec(6, is_stateful=True)}
    members = [Member(name, name.lower()) for name in "AB"]
    targets = assign(members, subtopologies, 0)
    members = [replace(one, active=targets[one.member_id].active) for one in members]
    after = assign([*members, Member("C", "c")], subtopologies, 0)
    assert {name: sum(map(len, target.active.values())) for name, target in after.items()} == {"A": 2, "B": 2, "C": 2}
    for one in members:
        assert set(iterate_tasks(after[one.member_id].active)) <= set(iterate_tasks(one.active))


def test_a_standby_task_becomes_active_when_the_member_with_the_active_task_leaves() -> None:
    subtopologies = {"0": SubtopologySpec(2, is_stateful=True)}
    members = [
        Member("A", "a", {"0": frozenset({0})}, {"0": frozenset({1})}),
        Member("C", "c"),
    ]
    targets = assign(members, subtopologies, 0)
    assert targets["A"].active == {"0": frozenset({0})} and targets["C"].active == {"0": frozenset({1})}
    alone = assign(members[:1], subtopologies, 1)
    assert alone["A"].active == {"0": frozenset({0, 1})} and not alone["A"].standby


def test_the_member_with_more_state_gets_the_task() -> None:
    subtopologies = {"0": SubtopologySpec(2, is_stateful=True)}
    members = [
        Member("A", "a", task_offsets={"0": {0: 5, 1: 1}}),
        Member("B", "b", task_offsets={"0": {0: 9, 1: 0}}),
    ]
    targets = assign(members, subtopologies, 0)
    assert targets["B"].active == {"0": frozenset({0})} and targets["A"].active == {"0": frozenset({1})}


def format_case(members: Sequence[Member], subtopologies: Subtopologies, standby_replicas: int) -> str:
    def tasks(found: Tasks) -> str:
        return ",".join(f"{name}_{partition}" for name, partition in sorted(iterate_tasks(found)))

    words = [
        f"{one.member_id};{one.process_id};{tasks(one.active)};{tasks(one.standby)};"
        + ",".join(f"{name}_{at}_{offset}" for name, of in one.task_offsets.items() for at, offset in of.items())
        for one in members
    ]
    counts = ",".join(f"{name}:{one.task_count}:{int(one.is_stateful)}" for name, one in subtopologies.items())
    return " ".join([str(standby_replicas), counts, *words])


def format_targets(targets: Mapping[str, TasksTuple]) -> str:
    def tasks(found: Tasks) -> str:
        return ",".join(sorted(f"{name}_{partition}" for name, partition in iterate_tasks(found)))

    return " ".join(f"{name};{tasks(target.active)};{tasks(target.standby)}" for name, target in targets.items())


@pytest.mark.java
@pytest.mark.timeout(600)
def test_assignments_are_those_of_apache_kafka() -> None:
    classpath = jars("org.apache.kafka:kafka-group-coordinator:4.4.0")
    classes = compile_java(Path(__file__).parent / "java", classpath)
    rng = random.Random(1071)
    cases = [random_case(rng) for _ in range(3000)]
    lines = "\n".join(format_case(*case) for case in cases) + "\n"
    result = run_java("StickyTaskAssignorOracle", [classes, *classpath], stdin=lines)
    assert result.returncode == 0, result.stderr[-2000:]
    for case, answer in zip(cases, result.stdout.splitlines(), strict=True):
        assert format_targets(assign(*case)) == answer, format_case(*case)
