"""The steps of a streams member towards its target: a table of cases, and the same results as Apache Kafka."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.java import compile_java, jars, run_java

from barnabas.protocol.errors import KafkaError
from barnabas.server.coordinator.group.streams.current_assignment_builder import build_current_assignment
from barnabas.server.coordinator.group.streams.streams_group_member import StreamsGroupMember, StreamsMemberState
from barnabas.server.coordinator.group.streams.tasks import Tasks, TasksTuple, TasksTupleWithEpochs, iterate_tasks

STABLE, UNREVOKED, UNRELEASED, UNKNOWN = StreamsMemberState
ROLES = ("active", "standby", "warmup")
Task = tuple[str, int]


def tasks(*partitions: int) -> Tasks:
    return {"0": frozenset(partitions)} if partitions else {}


def held(
    active: Mapping[int, int] | None = None, standby: Iterable[int] = (), warmup: Iterable[int] = ()
) -> TasksTupleWithEpochs:
    return TasksTupleWithEpochs({"0": active} if active else {}, tasks(*standby), tasks(*warmup))


@dataclass
class Owners:
    """The processes with each task, in each role."""

    active: dict[Task, str] = field(default_factory=dict)
    standby: dict[Task, set[str]] = field(default_factory=dict)
    warmup: dict[Task, set[str]] = field(default_factory=dict)

    def active_task_process_id(self, subtopology_id: str, partition: int) -> str | None:
        return self.active.get((subtopology_id, partition))

    def standby_task_process_ids(self, subtopology_id: str, partition: int) -> Collection[str]:
        return self.standby.get((subtopology_id, partition), ())

    def warmup_task_process_ids(self, subtopology_id: str, partition: int) -> Collection[str]:
        return self.warmup.get((subtopology_id, partition), ())


def member(state: StreamsMemberState = STABLE, assigned: TasksTupleWithEpochs | None = None) -> StreamsGroupMember:
    return StreamsGroupMember(
        "m", process_id="p", state=state, epoch=1, previous_epoch=1, assigned=assigned or TasksTupleWithEpochs()
    )


def test_free_tasks_are_assigned_with_the_epoch_of_the_target() -> None:
    after = build_current_assignment(member(), 2, TasksTuple(tasks(0, 1), tasks(2)), None, Owners())
    assert (after.state, after.epoch, after.previous_epoch) == (STABLE, 2, 1)
    assert after.assigned == held({0: 2, 1: 2}, [2])


def test_an_active_task_of_another_member_is_not_released() -> None:
    after = build_current_assignment(member(), 2, TasksTuple(tasks(0, 1)), None, Owners({("0", 1): "q"}))
    assert (after.state, after.epoch, after.assigned) == (UNRELEASED, 2, held({0: 2}))


def test_tasks_are_revoked_before_others_are_assigned() -> None:
    before = member(assigned=held({0: 1, 1: 1}))
    target = TasksTuple(tasks(1, 2))
    after = build_current_assignment(before, 2, target, None, Owners())
    assert (after.state, after.epoch, after.assigned, after.revoking) == (UNREVOKED, 1, held({1: 1}), held({0: 1}))
    same = build_current_assignment(after, 2, target, TasksTuple(tasks(0, 1)), Owners())
    assert same is after
    done = build_current_assignment(after, 2, target, TasksTuple(tasks(1)), Owners())
    assert (done.state, done.epoch, done.assigned) == (STABLE, 2, held({1: 1, 2: 2}))


def test_a_standby_task_becomes_active_when_the_active_task_is_free() -> None:
    before = member(assigned=held(standby=[0]))
    owners = Owners({("0", 0): "q"}, {("0", 0): {"p"}})
    waiting = build_current_assignment(before, 2, TasksTuple(tasks(0)), None, owners)
    assert (waiting.state, waiting.assigned) == (UNRELEASED, held(standby=[0]))
    owners.active.clear()
    after = build_current_assignment(waiting, 2, TasksTuple(tasks(0)), None, owners)
    assert (after.state, after.assigned) == (STABLE, held({0: 2}))


def test_a_member_in_an_unknown_state_must_give_up_its_tasks() -> None:
    with pytest.raises(KafkaError):
        build_current_assignment(member(UNKNOWN), 2, TasksTuple(tasks(0)), TasksTuple(tasks(0)), Owners())
    after = build_current_assignment(member(UNKNOWN), 2, TasksTuple(tasks(0)), TasksTuple(), Owners())
    assert (after.state, after.assigned) == (STABLE, held({0: 2}))


Case = tuple[StreamsGroupMember, int, TasksTuple, TasksTuple | None, Owners]


def random_case(rng: random.Random) -> Case:
    """A member in any state, and a target with tasks in any role; other members have some tasks."""
    every = [(name, partition) for name in "01" for partition in range(3)]

    def pick(share: float, without: Collection[Task] = ()) -> set[Task]:
        return {task for task in every if task not in without and rng.random() < share}

    active = pick(0.3)
    standby = pick(0.2, active)
    warmup = pick(0.2, active | standby)
    state = rng.choice([STABLE, STABLE, UNREVOKED, UNRELEASED, UNKNOWN])
    mine = active | standby | warmup
    revoking = (
        [pick(0.2, mine), pick(0.1, mine), pick(0.1, mine)] if state is UNREVOKED else [set[Task](), set(), set()]
    )
    target_active = pick(0.4)
    target_standby = pick(0.3, target_active)
    target = TasksTuple(*map(by_name, (target_active, target_standby, pick(0.2, target_active | target_standby))))
    owned = None if rng.random() < 0.4 else TasksTuple(by_name(pick(0.3)), by_name(pick(0.2)), by_name(pick(0.2)))
    owners = Owners()
    for task in every:
        if task in active | revoking[0]:
            owners.active[task] = "p"
        elif rng.random() < 0.3:
            owners.active[task] = rng.choice("pq")
        for role, own in ((owners.standby, standby | revoking[1]), (owners.warmup, warmup | revoking[2])):
            processes = {"p"} if task in own else set()
            if rng.random() < 0.2:
                processes.add(rng.choice("pq"))
            if processes:
                role[task] = processes
    epoch = rng.choice([1, 2, 4])
    of_member = StreamsGroupMember(
        "m",
        process_id="p",
        state=state,
        epoch=epoch,
        previous_epoch=epoch,
        assigned=TasksTupleWithEpochs(with_epochs(active, rng), by_name(standby), by_name(warmup)),
        revoking=TasksTupleWithEpochs(with_epochs(revoking[0], rng), by_name(revoking[1]), by_name(revoking[2])),
    )
    return of_member, 4, target, owned, owners


def by_name(found: Collection[Task]) -> Tasks:
    return {name: frozenset(one for other, one in found if other == name) for name in {name for name, _ in found}}


def with_epochs(found: Collection[Task], rng: random.Random) -> dict[str, dict[int, int]]:
    result: dict[str, dict[int, int]] = {}
    for name, partition in sorted(found):
        result.setdefault(name, {})[partition] = rng.randint(1, 3)
    return result


def listed(found: Tasks) -> str:
    return ",".join(sorted(f"{name}_{partition}" for name, partition in iterate_tasks(found)))


def listed_with_epochs(found: TasksTupleWithEpochs) -> str:
    active = sorted(f"{name}_{at}_{epoch}" for name, epochs in found.active.items() for at, epoch in epochs.items())
    return ";".join((",".join(active), listed(found.standby), listed(found.warmup)))


def format_case(case: Case) -> str:
    before, target_epoch, target, owned, owners = case

    def tuple_text(found: TasksTuple) -> str:
        return ";".join(map(listed, (found.active, found.standby, found.warmup)))

    active = ",".join(f"{name}_{partition}_{process}" for (name, partition), process in owners.active.items())
    others = (
        ",".join(f"{name}_{partition}_{one}" for (name, partition), processes in role.items() for one in processes)
        for role in (owners.standby, owners.warmup)
    )
    return " ".join(
        (
            str(before.state.value),
            str(before.epoch),
            before.process_id,
            listed_with_epochs(before.assigned),
            listed_with_epochs(before.revoking),
            str(target_epoch),
            tuple_text(target),
            "-" if owned is None else tuple_text(owned),
            ";".join((active, *others)),
        )
    )


def format_result(case: Case) -> str:
    try:
        after = build_current_assignment(*case)
    except KafkaError:
        return "FENCED"
    tasks_of = f"{listed_with_epochs(after.assigned)} {listed_with_epochs(after.revoking)}"
    return f"{after.state.value} {after.epoch} {tasks_of}"


@pytest.mark.verify
@pytest.mark.java
@pytest.mark.timeout(600)
def test_members_advance_as_in_apache_kafka() -> None:
    classpath = jars("org.apache.kafka:kafka-group-coordinator:4.4.0")
    classes = compile_java(Path(__file__).parent / "java", classpath)
    rng = random.Random(1071)
    cases = [random_case(rng) for _ in range(20_000)]
    lines = "\n".join(map(format_case, cases)) + "\n"
    result = run_java("CurrentAssignmentOracle", [classes, *classpath], stdin=lines)
    assert result.returncode == 0, result.stderr[-2000:]
    for case, answer in zip(cases, result.stdout.splitlines(), strict=True):
        assert format_result(case) == answer, format_case(case)
