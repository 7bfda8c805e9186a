"""The load of one instance of a streams application during an assignment (Kafka: ProcessState). No I/O, no time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class TaskId(NamedTuple):
    """A task: a subtopology and a partition number."""

    subtopology_id: str
    partition: int


class LeastLoadedQueue(Generic[T]):
    """A binary heap that orders elements of equal load as java.util.PriorityQueue does.

    With this order an assignment is equal to that of Apache Kafka for the same members, task by task, so that a group
    that moves from one kind of broker to the other keeps its tasks. `heapq` breaks ties in another order.
    """

    def __init__(self, load: Callable[[T], float]) -> None:
        self._load = load
        self._heap: list[T] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, element: T) -> None:
        """Add an element."""
        heap, load = self._heap, self._load
        heap.append(element)
        index, own = len(heap) - 1, load(element)
        while index > 0:
            parent = (index - 1) // 2
            if own >= load(heap[parent]):
                break
            heap[index] = heap[parent]
            index = parent
        heap[index] = element

    def poll(self) -> T | None:
        """Remove and return an element with the least load; None if there is none."""
        heap, load = self._heap, self._load
        if not heap:
            return None
        first, last = heap[0], heap.pop()
        if heap:
            index, own, half = 0, load(last), len(heap) // 2
            while index < half:
                child = 2 * index + 1
                if child + 1 < len(heap) and load(heap[child]) > load(heap[child + 1]):
                    child += 1
                if own <= load(heap[child]):
                    break
                heap[index] = heap[child]
                index = child
            heap[index] = last
        return first


class ProcessState:
    """The tasks of one process, its members and its load: tasks for each member."""

    __slots__ = ("_members_by_load", "active", "load", "standby", "task_count", "task_counts", "tasks")

    def __init__(self) -> None:
        self.load = 0.0
        self.task_count = 0
        self.task_counts: dict[str, int] = {}
        """The number of tasks of each member."""
        self.active: dict[str, set[TaskId]] = {}
        self.standby: dict[str, set[TaskId]] = {}
        self.tasks: set[TaskId] = set()
        self._members_by_load: LeastLoadedQueue[_MemberLoad] | None = None

    def add_member(self, member_id: str) -> None:
        """Add a member without tasks."""
        self.task_counts[member_id] = 0
        self._compute_load()

    def has_task(self, task: TaskId) -> bool:
        """Return whether a member of the process has the task, active or standby."""
        return task in self.tasks

    def add_task(self, member_id: str, task: TaskId, *, is_active: bool) -> int:
        """Give a member a task; return the number of its tasks."""
        self._members_by_load = None
        return self._add_task(member_id, task, is_active=is_active)

    def add_task_to_least_loaded_member(self, task: TaskId, *, is_active: bool) -> int:
        """Give the member with the fewest tasks a task; return the number of its tasks."""
        if len(self.task_counts) == 1:
            return self._add_task(next(iter(self.task_counts)), task, is_active=is_active)
        if self._members_by_load is None:
            self._members_by_load = LeastLoadedQueue(lambda one: one.task_count)
            for member_id, count in self.task_counts.items():
                self._members_by_load.add(_MemberLoad(member_id, count))
        member = self._members_by_load.poll()
        assert member is not None, "a process has at least one member"
        member.task_count = self._add_task(member.member_id, task, is_active=is_active)
        self._members_by_load.add(member)
        return member.task_count

    def _add_task(self, member_id: str, task: TaskId, *, is_active: bool) -> int:
        self.task_count += 1
        self.tasks.add(task)
        (self.active if is_active else self.standby).setdefault(member_id, set()).add(task)
        self.task_counts[member_id] += 1
        self._compute_load()
        return self.task_counts[member_id]

    def _compute_load(self) -> None:
        self.load = self.task_count / len(self.task_counts)


class _MemberLoad:
    __slots__ = ("member_id", "task_count")

    def __init__(self, member_id: str, task_count: int) -> None:
        self.member_id = member_id
        self.task_count = task_count
