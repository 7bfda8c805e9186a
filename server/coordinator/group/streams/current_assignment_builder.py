"""Kafka's CurrentAssignmentBuilder for streams groups: the next step of one member towards its target. Pure functions.

A member first revokes the tasks that are not in its target assignment, then adopts the target's epoch, then receives
each task when its former owner has released it. An active task never has two owners, and the threads of one process
never share the state directory of a task: a standby or warm-up task waits until no other thread of its process has the
task. A member that has a task in one role keeps its state on disk when the task changes its role.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Protocol

from .....protocol.errors import ErrorCode, KafkaError
from ..modern_group_change import LAST_EPOCH
from .streams_group_member import StreamsGroupMember, StreamsMemberState
from .tasks import (
    Tasks,
    TasksTuple,
    TasksTupleWithEpochs,
    TasksWithEpochs,
    filter_tasks,
    task_difference,
    task_intersection,
    task_union,
    without_epochs,
)


class TaskOwners(Protocol):
    """The processes that have a task or have not confirmed its revocation.

    A Protocol because the tests generate owners that a `StreamsGroup` has only after many heartbeats.
    """

    def active_task_process_id(self, subtopology_id: str, partition: int) -> str | None:
        """Return the process with the active task, None if the task is free."""

    def standby_task_process_ids(self, subtopology_id: str, partition: int) -> Collection[str]:
        """Return the processes with standby tasks of this task."""

    def warmup_task_process_ids(self, subtopology_id: str, partition: int) -> Collection[str]:
        """Return the processes with warm-up tasks of this task."""


def build_current_assignment(
    member: StreamsGroupMember, target_epoch: int, target: TasksTuple, owned: TasksTuple | None, owners: TaskOwners
) -> StreamsGroupMember:
    """Return the state of a member after a heartbeat; the same object if nothing changes.

    `owned` has the tasks in the heartbeat, None if it has none. Raises KafkaError FENCED_MEMBER_EPOCH.
    """
    if member.has_reached(target_epoch):
        return member
    epoch = member.epoch
    if member.state is StreamsMemberState.UNREVOKED_TASKS:
        if _has_not_released(member.revoking, owned):
            return member
        # If a later target requires further revocations, the member receives another epoch, so that a late heartbeat
        # with the former epoch is recognized.
        epoch = min(epoch + 1, LAST_EPOCH)
    elif member.state is StreamsMemberState.UNKNOWN:
        if owned is None or not owned.is_empty:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The streams group member is in an unknown state. The member must abandon all its tasks and rejoin.",
            )
        epoch = target_epoch
    return _Step(member, target_epoch, target, owned, owners).next_member(epoch)


def _has_not_released(revoking: TasksTupleWithEpochs, owned: TasksTuple | None) -> bool:
    return owned is None or owned.contains_any(revoking)


class _Step:
    """One computation of a member's next state."""

    def __init__(
        self,
        member: StreamsGroupMember,
        target_epoch: int,
        target: TasksTuple,
        owned: TasksTuple | None,
        owners: TaskOwners,
    ) -> None:
        self._member, self._process_id = member, member.process_id
        self._target_epoch, self._target = target_epoch, target
        self._owned, self._owners = owned, owners
        present = member.assigned
        self._active = without_epochs(present.active)
        self._standby, self._warmup = present.standby, present.warmup

    def next_member(self, epoch: int) -> StreamsGroupMember:
        """Return the next state; `epoch` is the epoch of the member if it has to revoke tasks."""
        target, member = self._target, self._member
        kept_active = task_intersection(self._active, target.active)
        kept_standby = task_intersection(self._standby, target.standby)
        kept_warmup = task_intersection(self._warmup, target.warmup)
        new_active = task_difference(target.active, kept_active)
        new_standby = task_difference(target.standby, kept_standby)
        new_warmup = task_difference(target.warmup, kept_warmup)
        free_active = filter_tasks(new_active, self._is_free_for_active)
        free_standby = filter_tasks(new_standby, self._is_free_for_standby)
        free_warmup = filter_tasks(new_warmup, self._is_free_for_warmup)
        has_unreleased = (free_active, free_standby, free_warmup) != (new_active, new_standby, new_warmup)

        revoking_active = task_difference(self._active, kept_active)
        revoking_standby = task_difference(self._standby, kept_standby)
        revoking_warmup = task_difference(self._warmup, kept_warmup)
        # A member that changes the role of its own task keeps the task's state: it needs no round of revocation.
        demoted = task_intersection(free_standby, self._active)
        free_standby, kept_standby = task_difference(free_standby, demoted), task_union(kept_standby, demoted)
        to_warmup = task_intersection(free_warmup, self._standby)
        free_warmup, kept_warmup = task_difference(free_warmup, to_warmup), task_union(kept_warmup, to_warmup)
        revoking_standby = task_difference(revoking_standby, to_warmup)
        to_standby = task_intersection(free_standby, self._warmup)
        free_standby, kept_standby = task_difference(free_standby, to_standby), task_union(kept_standby, to_standby)
        revoking_warmup = task_difference(revoking_warmup, to_standby)
        # A standby or warm-up task that will become active is kept until the active task is free.
        revoking_standby = task_difference(revoking_standby, target.active)
        revoking_warmup = task_difference(revoking_warmup, target.active)

        revoking = TasksTupleWithEpochs(
            _select(member.assigned.active, revoking_active), revoking_standby, revoking_warmup
        )
        must_revoke = not revoking.is_empty and _has_not_released(revoking, self._owned)
        granted: Tasks = {} if must_revoke else free_active
        kept_standby = task_union(kept_standby, self._awaiting_promotion(self._standby, granted))
        kept_warmup = task_union(kept_warmup, self._awaiting_promotion(self._warmup, granted))
        kept = TasksTupleWithEpochs(_select(member.assigned.active, kept_active), kept_standby, kept_warmup)
        if must_revoke:
            return _with_assignment(member, StreamsMemberState.UNREVOKED_TASKS, epoch, kept, revoking)
        added = TasksTupleWithEpochs(
            {name: dict.fromkeys(partitions, self._target_epoch) for name, partitions in free_active.items()},
            free_standby,
            free_warmup,
        )
        state = StreamsMemberState.UNRELEASED_TASKS if has_unreleased else StreamsMemberState.STABLE
        return _with_assignment(member, state, self._target_epoch, kept.merge(added), TasksTupleWithEpochs())

    def _awaiting_promotion(self, tasks: Tasks, granted: Tasks) -> Tasks:
        return task_difference(task_intersection(tasks, self._target.active), granted)

    # -- conditions of new tasks ---------------------------------------------------------------------------------------

    def _is_free_for_active(self, subtopology_id: str, partition: int) -> bool:
        return (
            self._owners.active_task_process_id(subtopology_id, partition) is None
            and not self._other_thread_has_standby(subtopology_id, partition)
            and not self._other_thread_has_warmup(subtopology_id, partition)
        )

    def _is_free_for_standby(self, subtopology_id: str, partition: int) -> bool:
        is_active_in_process = self._owners.active_task_process_id(subtopology_id, partition) == self._process_id
        return (
            (not is_active_in_process or partition in self._active.get(subtopology_id, frozenset()))
            and self._process_id not in self._owners.standby_task_process_ids(subtopology_id, partition)
            and not self._other_thread_has_warmup(subtopology_id, partition)
        )

    def _is_free_for_warmup(self, subtopology_id: str, partition: int) -> bool:
        return (
            self._owners.active_task_process_id(subtopology_id, partition) != self._process_id
            and not self._other_thread_has_standby(subtopology_id, partition)
            and self._process_id not in self._owners.warmup_task_process_ids(subtopology_id, partition)
        )

    def _other_thread_has_standby(self, subtopology_id: str, partition: int) -> bool:
        processes = self._owners.standby_task_process_ids(subtopology_id, partition)
        return self._process_id in processes and partition not in self._standby.get(subtopology_id, frozenset())

    def _other_thread_has_warmup(self, subtopology_id: str, partition: int) -> bool:
        processes = self._owners.warmup_task_process_ids(subtopology_id, partition)
        return self._process_id in processes and partition not in self._warmup.get(subtopology_id, frozenset())


def _select(tasks: TasksWithEpochs, selected: Tasks) -> TasksWithEpochs:
    """Return some of the tasks with their epochs."""
    return {name: {one: tasks[name][one] for one in partitions} for name, partitions in selected.items()}


def _with_assignment(
    member: StreamsGroupMember,
    state: StreamsMemberState,
    epoch: int,
    assigned: TasksTupleWithEpochs,
    revoking: TasksTupleWithEpochs,
) -> StreamsGroupMember:
    assert revoking.is_empty or state is StreamsMemberState.UNREVOKED_TASKS
    if (state, epoch, assigned, revoking) == (member.state, member.epoch, member.assigned, member.revoking):
        return member
    return replace(member, state=state, epoch=epoch, previous_epoch=member.epoch, assigned=assigned, revoking=revoking)
