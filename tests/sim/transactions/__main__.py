"""`python -m tests.sim.transactions --seed 7` replays a run; `--transactions 1000000 --minutes 60` looks for a failure.

With `--progress FILE` what was played is kept there, and the next call goes on behind it.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path

from tests.sim.cluster.__main__ import Progress
from tests.sim.transactions.plan import TransactionPlan
from tests.sim.transactions.scenario import TransactionOutcome, play


def explain(outcome: TransactionOutcome, *, quick: bool) -> str:
    """What a run came to, for who reads a failure."""
    plan = outcome.plan
    lines = [
        f"seed {plan.seed}: {plan.brokers} brokers, {plan.copiers} copiers ({plan.manner}), {outcome.acknowledged} of "
        f"{outcome.begun} transactions acknowledged, {outcome.lives} lives, {outcome.seconds:.0f} s simulated, "
        f"{outcome.steps} steps, digest {outcome.digest}, faults {', '.join(sorted(plan.faults)) or 'none'}"
    ]
    if outcome.violations:
        lines += [f"   {violation[:300]}" for violation in outcome.violations[:10]]
        lines.append(f"   done: {', '.join(outcome.done[-20:])}")
        lines.append(f"   replay: python -m tests.sim.transactions --seed {plan.seed}{' --quick' if quick else ''}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.transactions", description=__doc__)
    parser.add_argument("--seed", type=int, help="one run, with what the brokers log if --verbose")
    parser.add_argument("--transactions", type=int, default=10_000, help="how many are to be acknowledged in all")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
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
        outcome = play(TransactionPlan.draw(options.seed, quick=options.quick))
        print(explain(outcome, quick=options.quick))
        return 1 if outcome.violations else 0
    progress = Progress.load(options.progress, options.first)
    began = time.monotonic()
    while progress.acknowledged < options.transactions and time.monotonic() - began < options.minutes * 60:
        start = time.monotonic()
        outcome = play(TransactionPlan.draw(progress.next_seed, quick=options.quick))
        progress.add(outcome, time.monotonic() - start)
        progress.save(options.progress)
        if outcome.violations:
            print(explain(outcome, quick=options.quick), flush=True)
    print(
        f"{progress.played} seeds, {len(progress.failed)} failed {progress.failed or ''}, "
        f"{progress.acknowledged} transactions acknowledged, {progress.simulated_seconds:.0f} s simulated "
        f"in {progress.spent_seconds:.0f} s"
    )
    return 1 if progress.failed else 0


if __name__ == "__main__":
    sys.exit(main())
