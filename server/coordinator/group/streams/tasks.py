"""Tasks of a streams application by subtopology (Kafka: TasksTuple and TasksTupleWithEpochs). Immutable values.

A task is one partition number of a subtopology. An active task processes records, a standby task replicates the state
of an active task, and a warm-up task is a standby task that will become active.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

Tasks = Mapping[str, frozenset[int]]
"""Partition numbers by subtopology id, without subtopologies that have no tasks."""
TasksWithEpochs = Mapping[str, Mapping[int, int]]
"""The epoch of the assignment in which the member received each task, by subtopology id and partition number."""

NO_TASKS: Tasks = MappingProxyType({})
NO_TASKS_WITH_EPOCHS: TasksWithEpochs = MappingProxyType({})


def task_union(left: Tasks, right: Tasks) -> Tasks:
    """Return the tasks in either mapping."""
    if not right:
        return left
    return {name: left.get(name, frozenset()) | right.get(name, frozenset()) for name in left.keys() | right.keys()}


def task_intersection(left: Tasks, right: Tasks) -> Tasks:
    """Return the tasks in both mappings."""
    both = {name: partitions & right.get(name, frozenset()) for name, partitions in left.items()}
    return {name: partitions for name, partitions in both.items() if partitions}


def task_difference(left: Tasks, right: Tasks) -> Tasks:
    """Return the tasks in the first mapping and not in the second."""
    rest = {name: partitions - right.get(name, frozenset()) for name, partitions in left.items()}
    return {name: partitions for name, partitions in rest.items() if partitions}


def filter_tasks(tasks: Tasks, condition: Callable[[str, int], bool]) -> Tasks:
    """Return the tasks for which the condition is true."""
    found = {name: frozenset(one for one in partitions if condition(name, one)) for name, partitions in tasks.items()}
    return {name: partitions for name, partitions in found.items() if partitions}


def iterate_tasks(tasks: Mapping[str, frozenset[int]] | TasksWithEpochs) -> Iterator[tuple[str, int]]:
    """Yield the subtopology id and the partition number of each task."""
    for name, partitions in tasks.items():
        for partition in partitions:
            yield name, partition


def without_epochs(tasks: TasksWithEpochs) -> Tasks:
    """Return the tasks without the epochs of their assignment."""
    return {name: frozenset(partitions) for name, partitions in tasks.items()}


@dataclass(frozen=True, slots=True)
class TasksTuple:
    """The active, standby and warm-up tasks of a target assignment, or the tasks that a member reports to own."""

    active: Tasks = field(default_factory=lambda: NO_TASKS)
    standby: Tasks = field(default_factory=lambda: NO_TASKS)
    warmup: Tasks = field(default_factory=lambda: NO_TASKS)

    @property
    def is_empty(self) -> bool:
        """Whether there are no tasks."""
        return not (self.active or self.standby or self.warmup)

    def contains_any(self, other: TasksTupleWithEpochs) -> bool:
        """Return whether a task is in both tuples in the same role."""
        return (
            _overlap(self.active, other.active)
            or _overlap(self.standby, other.standby)
            or _overlap(self.warmup, other.warmup)
        )

    def is_equal(self, other: TasksTupleWithEpochs) -> bool:
        """Return whether both tuples have the same tasks in the same roles (Kafka: sameTasks)."""
        return (self.active, self.standby, self.warmup) == (without_epochs(other.active), other.standby, other.warmup)

    def is_within(self, other: TasksTupleWithEpochs) -> bool:
        """Return whether the other tuple has all tasks of this one in the same roles."""
        return (
            _is_within(self.active, other.active)
            and _is_within(self.standby, other.standby)
            and _is_within(self.warmup, other.warmup)
        )


@dataclass(frozen=True, slots=True)
class TasksTupleWithEpochs:
    """The tasks that a member has. Active tasks have an assignment epoch, which limits the commits of offsets."""

    active: TasksWithEpochs = field(default_factory=lambda: NO_TASKS_WITH_EPOCHS)
    standby: Tasks = field(default_factory=lambda: NO_TASKS)
    warmup: Tasks = field(default_factory=lambda: NO_TASKS)

    @property
    def is_empty(self) -> bool:
        """Whether there are no tasks."""
        return not (self.active or self.standby or self.warmup)

    def merge(self, other: TasksTupleWithEpochs) -> TasksTupleWithEpochs:
        """Return the tasks in either tuple."""
        active = {name: {**self.active.get(name, {}), **tasks} for name, tasks in other.active.items()}
        return TasksTupleWithEpochs(
            {**self.active, **active}, task_union(self.standby, other.standby), task_union(self.warmup, other.warmup)
        )

    def with_active_epochs(self, epoch: int) -> TasksTupleWithEpochs:
        """Return the same tasks with one assignment epoch for all active tasks."""
        active = {name: dict.fromkeys(tasks, epoch) for name, tasks in self.active.items()}
        return TasksTupleWithEpochs(active, self.standby, self.warmup)


def _overlap(left: Tasks, right: Tasks | TasksWithEpochs) -> bool:
    return any(not partitions.isdisjoint(right.get(name, ())) for name, partitions in left.items())


def _is_within(left: Tasks, right: Tasks | TasksWithEpochs) -> bool:
    return all(partitions <= frozenset(right.get(name, ())) for name, partitions in left.items())
