"""`python -m soak.cluster --rounds 100`: three brokers and a real ZooKeeper are killed, paused and cut off under load.

`--first 37` goes on where a run ended, `--round 7` repeats one. The folders of a round that failed are kept.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from soak.cluster.processes import ProcessCluster
from soak.cluster.rounds import Outcome, Plan, play


def outcomes(numbers: Iterable[int], folder: Path) -> Iterator[Outcome]:
    """Play rounds on one cluster for as long as it lives up to what it promised, then on a new one."""
    remaining, life = list(numbers), 0
    while remaining:
        life += 1
        with ProcessCluster(folder / str(life)) as cluster:
            while remaining:
                outcome = play(cluster, Plan.draw(remaining.pop(0)))
                yield outcome
                if outcome.violations:
                    break
        if not outcome.violations:
            shutil.rmtree(folder / str(life))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.cluster", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="how many (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first (default: %(default)s)")
    parser.add_argument("--round", type=int, help="only this one")
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after this time (default: %(default)s)")
    options = parser.parse_args()
    one = options.round
    numbers = [one] if one is not None else range(options.first, options.first + options.rounds)
    folder = Path(tempfile.mkdtemp(prefix="rounds-"))
    began, done, failed, acknowledged = time.monotonic(), 0, 0, 0
    for outcome in outcomes(numbers, folder):
        done, acknowledged = done + 1, acknowledged + outcome.acknowledged
        failed += bool(outcome.violations)
        figures = f"longest gap {outcome.longest_gap_s:.1f} s, in sync after {outcome.in_sync_s:.1f} s"
        print(f"{outcome.plan}: {outcome.acknowledged} acknowledged, {figures}", flush=True)
        for violation in outcome.violations[:10]:
            print("  ", violation[:300], flush=True)
        if time.monotonic() - began > options.minutes * 60:
            break
    print(
        f"{done} rounds, {failed} failed, {acknowledged} acknowledged in {time.monotonic() - began:.0f} s", flush=True
    )
    if failed:
        print(f"folders: {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
