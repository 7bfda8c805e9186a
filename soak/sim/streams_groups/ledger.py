"""The tasks that members have, and the checks of the assignments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from soak.sim.streams_groups.member import Life
    from soak.sim.streams_groups.plan import StreamsPlan

MAX_VIOLATIONS = 50
Task = tuple[str, int]
"""Subtopology id and partition."""


@dataclass(slots=True)
class Entitlement:
    """The times until which the coordinator cannot assign the active tasks of a member to another member."""

    heartbeat_at: float = 0.0
    """The time of the last successful heartbeat. The session lasts at least until its timeout after this time."""
    revocation_since: float | None = None
    """A lower bound of the time at which the coordinator requested an unfinished revocation."""


@dataclass
class TaskLedger:
    """The assignments of one run."""

    plan: StreamsPlan
    now: Callable[[], float]
    violations: list[str] = field(default_factory=list)
    owners: dict[tuple[int, Task], str] = field(default_factory=dict)
    """The member, or the static member's instance id, that has acknowledged an active task in an epoch."""
    lives: list[Life] = field(default_factory=list)
    acknowledged: int = 0
    """The number of assignments that members have acknowledged."""

    def _say(self, violation: str) -> None:
        if len(self.violations) < MAX_VIOLATIONS:
            self.violations.append(f"{self.now():.3f} {violation}")

    def check_response(self, life: Life, epoch: int, active: Iterable[Task], standby: Iterable[Task]) -> None:
        """Check the epoch and the tasks of a response."""
        active, standby = frozenset(active), frozenset(standby)
        if epoch < life.epoch:
            self._say(f"epoch: {life.name} had epoch {life.epoch} and received {epoch}")
        if not active | standby <= self.plan.tasks:
            self._say(f"unknown task: {life.name} received {sorted((active | standby) - self.plan.tasks)}")
        if active & standby:
            self._say(f"roles: {life.name} received {sorted(active & standby)} in two roles")

    def adopt(self, life: Life, active: Iterable[Task]) -> None:
        """Check that no other member still has the active tasks that a member begins to process."""
        for task in sorted(active):
            for other in self.lives:
                if other is not life and task in other.active and self._is_entitled(other):
                    self._say(f"two owners: {task} is active at {other.name}, epoch {other.epoch}, and {life.name}")

    def _is_entitled(self, life: Life) -> bool:
        if life.is_dead or life.has_ended:
            return False
        now, entitlement = self.now(), life.entitlement
        since = entitlement.revocation_since
        is_late = since is not None and now >= since + self.plan.rebalance_seconds
        return now < entitlement.heartbeat_at + self.plan.session_seconds and not is_late

    def acknowledge(self, member: str, epoch: int, active: Iterable[Task]) -> None:
        """Check that each active task of a successful heartbeat has one owner in the epoch."""
        self.acknowledged += 1
        for task in sorted(active):
            owner = self.owners.setdefault((epoch, task), member)
            if owner != member:
                self._say(f"epoch: {task} was acknowledged by {owner} and {member} in epoch {epoch}")

    def differences(self, running: Sequence[Life]) -> list[str]:
        """Return the differences between the tasks of the running members and a complete assignment."""
        plan, found = self.plan, []
        if len({life.epoch for life in running}) != 1 or not running[0].epoch:
            found.append(f"the members have the epochs {[life.epoch for life in running]}")
        processes = {life.process_id for life in running}
        for task in sorted(plan.tasks):
            active = [life for life in running if task in life.active]
            if len(active) != 1:
                found.append(f"{task} is active at {[life.name for life in active]}")
                continue
            standby = [life.process_id for life in running if task in life.standby]
            count = min(plan.standby_replicas, len(processes) - 1) if task in plan.stateful_tasks else 0
            if len(standby) != count or len({*standby, active[0].process_id}) != count + 1:
                found.append(f"{task} is active in {active[0].process_id} and has {count} standby tasks in {standby}")
        return found
