"""`python -m tests.sim --seed 7` replays one simulated run; `--seeds 1000 --minutes 10` looks for one that fails."""

from __future__ import annotations

import argparse
import sys
import time

from tests.sim.scenario import Outcome, play


def describe(outcome: Outcome) -> str:
    plan = outcome.plan
    return (
        f"seed {plan.seed}: {outcome.acknowledged} acknowledged, {outcome.lives} lives, "
        f"{outcome.seconds:.0f} s simulated, {outcome.steps} steps, digest {outcome.digest}, "
        f"faults {', '.join(sorted(plan.faults)) or 'none'}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="one run, printed in full")
    parser.add_argument("--seeds", type=int, default=100, help="how many runs (default 100)")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--minutes", type=float, default=10.0, help="stop after this time")
    parser.add_argument("--durability", choices=["disk", "page-cache"], default="disk")
    options = parser.parse_args()
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    began, done, failed, simulated = time.monotonic(), 0, 0, 0.0
    for seed in seeds:
        if time.monotonic() - began > options.minutes * 60:
            break
        outcome = play(seed, durability=options.durability)
        done += 1
        simulated += outcome.seconds
        if options.seed is not None or outcome.violations:
            print(describe(outcome))
        if outcome.violations:
            failed += 1
            for violation in outcome.violations[:10]:
                print("  ", violation[:160])
            print(f"   replay: python -m tests.sim --seed {seed} --durability {options.durability}")
    spent = time.monotonic() - began
    print(f"{done} seeds, {failed} failed, {simulated:.0f} s simulated in {spent:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
