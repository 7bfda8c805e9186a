"""`python -m soak.kraft --rounds 100`: faults of brokers and controllers of a KRaft cluster under load.

The controllers are Apache Kafka's; broker 1 is Apache Kafka's, 2 and 3 are Barnabas. `--first 37` continues where a run
ended, `--round 7` repeats one round. The folders of a round that failed are kept.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from soak.kraft.processes import KRaftProcessCluster
from soak.kraft.rounds import Outcome, Plan, play


def outcomes(numbers: Iterable[int], folder: Path) -> Iterator[Outcome]:
    """Play rounds on one cluster until a round fails, then on a new one."""
    remaining, life = list(numbers), 0
    while remaining:
        life += 1
        with KRaftProcessCluster(folder / str(life)) as cluster:
            while remaining:
                outcome = play(cluster, Plan.draw(remaining.pop(0)))
                yield outcome
                if outcome.violations:
                    break
        if not outcome.violations:
            shutil.rmtree(folder / str(life))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.kraft", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="number of rounds (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first round (default: %(default)s)")
    parser.add_argument("--round", type=int, help="only this round")
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after this time (default: %(default)s)")
    options = parser.parse_args()
    one = options.round
    numbers = [one] if one is not None else range(options.first, options.first + options.rounds)
    folder = Path(tempfile.mkdtemp(prefix="kraft-rounds-"))
    began, done, failed = time.monotonic(), 0, 0
    totals = dict.fromkeys(("acknowledged", "committed", "shared"), 0)
    for outcome in outcomes(numbers, folder):
        done += 1
        failed += bool(outcome.violations)
        for what in totals:
            totals[what] += getattr(outcome, what)
        print(f"{time.strftime('%H:%M:%S')} {outcome}", flush=True)
        for violation in outcome.violations[:10]:
            print("  ", violation[:600], flush=True)
        if time.monotonic() - began > options.minutes * 60:
            break
    sums = f"{totals['acknowledged']} acknowledged, {totals['committed']} transactions, {totals['shared']} shared"
    print(f"{done} rounds, {failed} failed, {sums} in {time.monotonic() - began:.0f} s", flush=True)
    if failed:
        print(f"folders: {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
