"""Kafka's StickyTaskAssignor (`sticky`, the assignor of streams groups). Pure functions.

A member keeps active tasks up to the even share of tasks. Other active tasks are assigned to members that have the
state of the task, and then to the processes with the least load. Standby tasks are assigned to former owners of the
task, to members that have its state, and then to the processes with the least load, but never to a process that has the
task already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from .....common.room_logger import room_logger
from ....runtime.loop_sharing import Steps
from .process_state import LeastLoadedQueue, ProcessState, TaskId
from .tasks import NO_TASKS, Tasks, TasksTuple, iterate_tasks

logger = room_logger("groups")

STICKY_ASSIGNOR_NAME = "sticky"
TASKS_PER_STEP = 20
"""Tasks that are assigned between two pauses: a tenth of a millisecond."""
TaskOffsets = Mapping[str, Mapping[int, int]]
"""Sums of changelog offsets by subtopology id and partition number."""


@dataclass(frozen=True, slots=True)
class MemberAssignmentState:
    """A member with its present tasks and the offsets of the state on its disk."""

    member_id: str
    process_id: str
    active: Tasks = field(default_factory=lambda: NO_TASKS)
    standby: Tasks = field(default_factory=lambda: NO_TASKS)
    task_offsets: TaskOffsets = field(default_factory=dict)


class SubtopologySpec(NamedTuple):
    """The tasks of one subtopology (Kafka: TopologyDescriber)."""

    task_count: int
    is_stateful: bool
    """Whether the subtopology has a changelog, so that its tasks may have standby tasks."""


def assign(
    members: Sequence[MemberAssignmentState], subtopologies: Mapping[str, SubtopologySpec], standby_replicas: int
) -> dict[str, TasksTuple]:
    """Return the target assignment of each member; the group has at least one member."""
    steps = assign_in_steps(members, subtopologies, standby_replicas)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            targets: dict[str, TasksTuple] = stop.value
            return targets


def assign_in_steps(
    members: Sequence[MemberAssignmentState], subtopologies: Mapping[str, SubtopologySpec], standby_replicas: int
) -> Steps[dict[str, TasksTuple]]:
    """Return the same as `assign`, with a pause after each few tasks."""
    assignment = _Assignment(members, subtopologies, standby_replicas)
    yield from assignment.collect_owners()
    yield from assignment.assign_active_tasks()
    if standby_replicas > 0:
        yield from assignment.assign_standby_tasks()
    return assignment.result()


class _Owner(NamedTuple):
    member_id: str
    process: ProcessState

    @property
    def task_count(self) -> int:
        return self.process.task_counts[self.member_id]


class _Quota:
    """The even share of tasks of the members that have not reached their share."""

    __slots__ = ("_members", "_tasks", "tasks_per_member")

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks, self._members = tasks, members
        self._compute()

    def _compute(self) -> None:
        self.tasks_per_member = -(-self._tasks // self._members) if self._members else 0

    def record(self, task_count: int) -> None:
        """Record that a member has `task_count` tasks now. A member with its full share is excluded from the quota."""
        if task_count == self.tasks_per_member:
            self._members -= 1
            self._tasks -= task_count
            self._compute()


class _Assignment:
    def __init__(
        self,
        members: Sequence[MemberAssignmentState],
        subtopologies: Mapping[str, SubtopologySpec],
        standby_replicas: int,
    ) -> None:
        self._members, self._standby_replicas = members, standby_replicas
        # In the order of the ids, as in Kafka's topologies.
        self._subtopologies = dict(sorted(subtopologies.items()))
        active_count = sum(one.task_count for one in subtopologies.values())
        stateful_count = sum(one.task_count for one in subtopologies.values() if one.is_stateful)
        self._active_quota = _Quota(active_count, len(members))
        self._quota = _Quota(active_count + stateful_count * standby_replicas, len(members))
        self._processes: dict[str, ProcessState] = {}
        self._active_owners: dict[TaskId, _Owner] = {}
        """The last member that had the task as an active one."""
        self._standby_owners: dict[TaskId, list[_Owner]] = {}
        """The members that have state of the task, the best first."""

    def collect_owners(self) -> Iterator[None]:
        """Find the present owners of tasks, and the members that have their state."""
        candidates: dict[TaskId, list[tuple[tuple[bool, int], _Owner]]] = {}
        for member in self._members:
            process = self._processes.get(member.process_id)
            if process is None:
                process = self._processes[member.process_id] = ProcessState()
            process.add_member(member.member_id)
            owner = _Owner(member.member_id, process)
            for name, partition in iterate_tasks(member.active):
                self._active_owners[TaskId(name, partition)] = owner
            for name, partition in iterate_tasks(member.standby):
                offset = member.task_offsets.get(name, {}).get(partition, 0)
                candidates.setdefault(TaskId(name, partition), []).append(((False, -offset), owner))
            yield
            for name, offsets in member.task_offsets.items():
                standby = member.standby.get(name, frozenset())
                for partition, offset in offsets.items():
                    if partition not in standby:
                        candidates.setdefault(TaskId(name, partition), []).append(((True, -offset), owner))
        for task, ranked in candidates.items():
            # Members with the standby task first, then members with more of its state; the sort is stable.
            ranked.sort(key=itemgetter(0))
            self._standby_owners[task] = [owner for _, owner in ranked]

    def _tasks(self, *, is_stateful: bool) -> list[TaskId]:
        return [
            TaskId(name, partition)
            for name, subtopology in self._subtopologies.items()
            if subtopology.is_stateful or not is_stateful
            for partition in range(subtopology.task_count)
        ]

    def _processes_by_load(self) -> LeastLoadedQueue[ProcessState]:
        queue: LeastLoadedQueue[ProcessState] = LeastLoadedQueue(lambda process: process.load)
        for _, process in sorted(self._processes.items(), key=itemgetter(0)):
            queue.add(process)
        return queue

    # -- active tasks --------------------------------------------------------------------------------------------------

    def assign_active_tasks(self) -> Iterator[None]:
        """Assign each task to one member."""
        tasks = sorted(self._tasks(is_stateful=False), key=lambda task: (task.partition, task.subtopology_id))
        yield
        tasks = [task for task in tasks if not self._keep_active(task, self._active_owners.get(task))]
        yield
        left = []
        for number, task in enumerate(tasks):
            if not self._keep_active(task, self._least_loaded_standby_owner(task)):
                left.append(task)
            if number % TASKS_PER_STEP == 0:
                yield
        queue = self._processes_by_load()
        for number, task in enumerate(sorted(left)):
            if number % TASKS_PER_STEP == 0:
                yield
            process = queue.poll()
            assert process is not None, "a group that gets an assignment has members"
            self._record_active(process.add_task_to_least_loaded_member(task, is_active=True))
            queue.add(process)

    def _keep_active(self, task: TaskId, owner: _Owner | None) -> bool:
        if owner is None or owner.task_count >= self._active_quota.tasks_per_member:
            return False
        self._record_active(owner.process.add_task(owner.member_id, task, is_active=True))
        return True

    def _record_active(self, task_count: int) -> None:
        self._active_quota.record(task_count)
        self._quota.record(task_count)

    def _least_loaded_standby_owner(self, task: TaskId, *, without_task: bool = False) -> _Owner | None:
        """Return the first member with state of the task whose process and member both have the least load."""
        best: _Owner | None = None
        for owner in self._standby_owners.get(task, ()):
            if without_task and owner.process.has_task(task):
                continue
            if best is None or (owner.process.load < best.process.load and owner.task_count < best.task_count):
                best = owner
        return best

    # -- standby tasks -------------------------------------------------------------------------------------------------

    def assign_standby_tasks(self) -> Iterator[None]:
        """Assign standby tasks of the stateful subtopologies, as many as the processes can have."""
        left: list[tuple[TaskId, int]] = []
        tasks = self._tasks(is_stateful=True)
        ordered = sorted(tasks, key=lambda task: (task.partition, task.subtopology_id), reverse=True)
        for index, task in enumerate(ordered):
            if index % TASKS_PER_STEP == 0:
                yield
            for number in range(self._standby_replicas):
                if not self._keep_standby(task):
                    left.append((task, self._standby_replicas - number))
                    break
        queue = self._processes_by_load()
        missing = 0
        for index, (task, replicas) in enumerate(sorted(left, key=itemgetter(0), reverse=True)):
            if index % TASKS_PER_STEP == 0:
                yield
            for number in range(replicas):
                if not self._add_standby(queue, task):
                    missing += replicas - number
                    break
        if missing:
            logger.info("%d standby tasks of a streams group cannot be assigned: it has too few instances", missing)

    def _keep_standby(self, task: TaskId) -> bool:
        former = self._active_owners.get(task)
        if former is not None and not former.process.has_task(task) and self._has_room(former):
            owner: _Owner | None = former
        else:
            owner = self._least_loaded_standby_owner(task, without_task=True)
            if owner is None or not self._has_room(owner):
                return False
        assert owner is not None
        self._quota.record(owner.process.add_task(owner.member_id, task, is_active=False))
        return True

    def _has_room(self, owner: _Owner) -> bool:
        return owner.task_count < self._quota.tasks_per_member

    def _add_standby(self, queue: LeastLoadedQueue[ProcessState], task: TaskId) -> bool:
        """Give a standby task to the process with the least load that does not have the task."""
        polled = []
        found = False
        while not found and (process := queue.poll()) is not None:
            polled.append(process)
            if not process.has_task(task):
                self._quota.record(process.add_task_to_least_loaded_member(task, is_active=False))
                found = True
        for process in reversed(polled):
            queue.add(process)
        return found

    # -- the result ----------------------------------------------------------------------------------------------------

    def result(self) -> dict[str, TasksTuple]:
        """Return the tasks of each member."""
        return {
            member.member_id: TasksTuple(
                _by_subtopology(self._processes[member.process_id].active.get(member.member_id, ())),
                _by_subtopology(self._processes[member.process_id].standby.get(member.member_id, ())),
            )
            for member in self._members
        }


def _by_subtopology(tasks: set[TaskId] | tuple[()]) -> Tasks:
    found: dict[str, set[int]] = {}
    for name, partition in tasks:
        found.setdefault(name, set()).add(partition)
    return {name: frozenset(partitions) for name, partitions in found.items()}
