"""`python -m tests.sim.cluster --seed 7` replays a simulated cluster; `--seeds 5000 --minutes 60` looks for a failure.

With `--progress FILE` what was played is kept there, and the next call goes on behind it.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.sim.cluster.plan import ClusterPlan
from tests.sim.cluster.scenario import ClusterOutcome, play
from tests.sim.transactions.scenario import TransactionOutcome


@dataclass
class Progress:
    """What has been played so far, by all calls together."""

    next_seed: int
    played: int = 0
    acknowledged: int = 0
    simulated_seconds: float = 0.0
    spent_seconds: float = 0.0
    failed: list[int] = field(default_factory=list)

    @classmethod
    def load(cls, file: Path | None, first: int) -> Progress:
        if file is None or not file.exists():
            return cls(first)
        return cls(**json.loads(file.read_text()))

    def save(self, file: Path | None) -> None:
        if file is not None:
            file.write_text(json.dumps(asdict(self)) + "\n")

    def add(self, outcome: ClusterOutcome | TransactionOutcome, spent: float) -> None:
        self.next_seed += 1
        self.played += 1
        self.acknowledged += outcome.acknowledged
        self.simulated_seconds += outcome.seconds
        self.spent_seconds += spent
        if outcome.violations:
            self.failed.append(outcome.plan.seed)


def describe(outcome: ClusterOutcome) -> str:
    plan = outcome.plan
    return (
        f"seed {plan.seed}: {plan.brokers} brokers, {outcome.acknowledged} acknowledged, {outcome.lives} lives, "
        f"{outcome.seconds:.0f} s simulated, {outcome.steps} steps, digest {outcome.digest}, "
        f"faults {', '.join(sorted(plan.faults)) or 'none'}"
    )


def show(outcome: ClusterOutcome, *, quick: bool) -> None:
    print(describe(outcome))
    if outcome.violations:
        for violation in outcome.violations[:10]:
            print("  ", violation[:300])
        print("   done:", ", ".join(outcome.done[-20:]))
        print(f"   replay: python -m tests.sim.cluster --seed {outcome.plan.seed}{' --quick' if quick else ''}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.cluster", description=__doc__)
    parser.add_argument("--seed", type=int, help="one run, with what the brokers log if --verbose")
    parser.add_argument("--seeds", type=int, default=100, help="how many runs, those before included (default 100)")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--minutes", type=float, default=10.0, help="stop after this time")
    parser.add_argument("--quick", action="store_true", help="short runs, as in the tests")
    parser.add_argument("--progress", type=Path, help="where to go on from, and to keep how far it came")
    parser.add_argument("--verbose", action="store_true", help="show what brokers and clients log")
    options = parser.parse_args()
    if options.verbose:
        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    else:
        logging.disable(logging.CRITICAL)
    if options.seed is not None:
        outcome = play(ClusterPlan.draw(options.seed, quick=options.quick))
        show(outcome, quick=options.quick)
        return 1 if outcome.violations else 0
    progress = Progress.load(options.progress, options.first)
    began = time.monotonic()
    while progress.played < options.seeds and time.monotonic() - began < options.minutes * 60:
        start = time.monotonic()
        outcome = play(ClusterPlan.draw(progress.next_seed, quick=options.quick))
        progress.add(outcome, time.monotonic() - start)
        progress.save(options.progress)
        if outcome.violations:
            show(outcome, quick=options.quick)
    print(
        f"{progress.played} seeds, {len(progress.failed)} failed {progress.failed or ''}, "
        f"{progress.acknowledged} records acknowledged, {progress.simulated_seconds:.0f} s simulated "
        f"in {progress.spent_seconds:.0f} s"
    )
    return 1 if progress.failed else 0


if __name__ == "__main__":
    sys.exit(main())
