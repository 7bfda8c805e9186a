"""Run a plan in the simulation and describe its outcome."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from soak.sim.workload import Load, Workload

from barnabas.protocol.errors import KafkaError
from barnabas.simulation.loop import SimLoop, run

PlanT = TypeVar("PlanT", bound=Load)
WorkT = TypeVar("WorkT", bound=Workload)


@dataclass(frozen=True, slots=True)
class Outcome(Generic[PlanT]):
    """The outcome of a run."""

    plan: PlanT
    command: str
    """The command that replays the run."""
    summary: str
    violations: list[str]
    done: list[str]
    """The faults of the brokers, in order."""
    acknowledged: int
    lives: int
    steps: int
    seconds: float
    digest: str
    """A hash of all acknowledgements, all records read and the number of steps. Identical runs have equal digests."""

    def explain(self) -> str:
        """Return a description of the run, with its violations and the command that replays it."""
        plan = self.plan
        lines = [
            f"seed {plan.seed}: {self.summary}, {self.lives} lives, {self.seconds:.0f} s simulated, "
            f"{self.steps} steps, digest {self.digest}, faults {', '.join(sorted(plan.faults)) or 'none'}"
        ]
        if self.violations:
            lines += [f"   {violation[:300]}" for violation in self.violations[:10]]
            lines += [f"   done: {', '.join(self.done[-30:])}"] if self.done else []
            lines.append(f"   replay: {self.command}")
        return "\n".join(lines)


def carry_out(make: Callable[[SimLoop, PlanT], WorkT], plan: PlanT) -> tuple[WorkT, list[str]]:
    """Carry out a plan and check its history; return the workload and all violations."""
    held: list[WorkT] = []

    async def main(loop: SimLoop) -> None:
        held.append(make(loop, plan))
        await held[0].go()

    violations: list[str] = []
    try:
        run(main, plan.seed)
    except (AssertionError, KafkaError, OSError) as error:
        violations.append(f"{type(error).__name__}: {error}")
    (work,) = held
    # An unfinished run has not read all records, so that most checks would fail.
    violations += work.check_unfinished() if violations else work.check()
    return work, violations


def outcome_of(make: Callable[[SimLoop, PlanT], Workload], plan: PlanT, command: str) -> Outcome[PlanT]:
    """Carry out a plan and return its outcome; `command` replays the run."""
    work, violations = carry_out(make, plan)
    return Outcome(
        plan=plan,
        command=command,
        summary=work.summary,
        violations=violations,
        done=work.done,
        acknowledged=work.acknowledged,
        lives=work.lives,
        steps=work.loop.steps,
        seconds=work.loop.time(),
        digest=hashlib.sha256(repr((work.trace(), work.loop.steps)).encode()).hexdigest()[:16],
    )
