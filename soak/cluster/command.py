"""The command line of rounds: play the rounds, print each outcome, and keep the folders of failed rounds."""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

from soak.cluster.faults import Outcome

C = TypeVar("C")
SHOWN_VIOLATIONS, SHOWN_CHARACTERS = 10, 600


def play_rounds(
    numbers: Iterable[int],
    folder: Path,
    start_cluster: Callable[[Path], AbstractContextManager[C]],
    play: Callable[[C, int], Outcome],
) -> Iterator[Outcome]:
    """Play rounds on one cluster and yield their outcomes. After a failed round, continue on a new cluster."""
    remaining, life = list(numbers), 0
    while remaining:
        life += 1
        with start_cluster(folder / str(life)) as cluster:
            while remaining:
                outcome = play(cluster, remaining.pop(0))
                yield outcome
                if outcome.violations:
                    break
        if not outcome.violations:
            shutil.rmtree(folder / str(life))


def run_rounds(prog: str, description: str | None, outcomes: Callable[[Iterable[int], Path], Iterator[Outcome]]) -> int:
    """Parse the command line, play the rounds, print a line per round and the totals, and return the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {prog}", description=description)
    parser.add_argument("--rounds", type=int, default=100, help="number of rounds (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first round (default: %(default)s)")
    parser.add_argument("--round", type=int, help="play only the round with this number")
    parser.add_argument("--minutes", type=float, default=60.0, help="time limit in minutes (default: %(default)s)")
    options = parser.parse_args()
    one = options.round
    numbers = [one] if one is not None else range(options.first, options.first + options.rounds)
    folder = Path(tempfile.mkdtemp(prefix="rounds-"))
    began, done, failed = time.monotonic(), 0, 0
    totals: Counter[str] = Counter()
    for outcome in outcomes(numbers, folder):
        done += 1
        failed += bool(outcome.violations)
        totals.update(outcome.counts())
        print(f"{time.strftime('%H:%M:%S')} {outcome}", flush=True)
        for violation in outcome.violations[:SHOWN_VIOLATIONS]:
            print("  ", violation[:SHOWN_CHARACTERS], flush=True)
        if time.monotonic() - began > options.minutes * 60:
            break
    sums = ", ".join(f"{number} {name}" for name, number in totals.items())
    print(f"{done} rounds, {failed} failed, {sums} in {time.monotonic() - began:.0f} s", flush=True)
    if failed:
        print(f"folders: {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if failed else 0
