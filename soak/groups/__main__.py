"""Search for a failing run with consumer groups: `python -m soak.groups --rebalances 100000`.

All processors play seeds. `--seed 7` replays one seed. `--minutes 5` starts no seed after this time. The last line of
the output contains the next seed.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor

from soak.groups.group_life import play_seed

ENOUGH = 10
"""The number of failed seeds after which the search stops."""
REPORT_INTERVAL_S = 10.0

Lived = tuple[int, int, str]
"""A seed, its number of rebalances, and its failure or an empty string."""


def live_through(seed: int) -> Lived:
    """Play a seed in a worker process."""
    logging.getLogger("barnabas").setLevel(logging.ERROR)
    try:
        return seed, len(play_seed(seed).generations), ""
    except Exception as error:
        return seed, 0, f"{type(error).__name__}: {error}"


def lives(first: int, pool: ProcessPoolExecutor, deadline: float) -> Iterator[Lived]:
    """Play seeds in order until the deadline and yield their results. Started seeds are finished."""
    under_way: deque[Future[Lived]] = deque()
    seed = first
    while time.monotonic() < deadline:
        while len(under_way) < 4 * (os.cpu_count() or 1):
            under_way.append(pool.submit(live_through, seed))
            seed += 1
        yield under_way.popleft().result()
    for future in under_way:
        if future.cancel():
            return
        yield future.result()


def look(first: int, rebalances: int, deadline: float) -> int:
    """Search until the number of rebalances is reached, and print the progress; return 1 if a seed failed, else 0."""
    began = reported_at = time.monotonic()
    lived = counted = failed = 0
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("fork")) as pool:
        for seed, generations, problem in lives(first, pool, deadline):
            lived, counted = lived + 1, counted + generations
            if problem:
                failed += 1
                print(
                    f"seed {seed}: {problem}\n   replay: python -m soak.groups --seed {seed}",
                    flush=True,
                )
            if counted >= rebalances or failed >= ENOUGH:
                break
            if time.monotonic() - reported_at > REPORT_INTERVAL_S:
                reported_at = time.monotonic()
                print(
                    f"{counted} rebalances in {lived} seeds, {failed} failed, {reported_at - began:.0f} s", flush=True
                )
        pool.shutdown(cancel_futures=True)
    spent = time.monotonic() - began
    print(f"{counted} rebalances in {lived} seeds, {failed} failed, {spent:.0f} s; next: --first {first + lived}")
    return 1 if failed or not lived else 0


def replay(seed: int) -> int:
    """Replay a seed, with the traceback of a failure; return 1 if the seed failed, else 0."""
    logging.getLogger("barnabas").setLevel(logging.ERROR)
    try:
        generations = len(play_seed(seed).generations)
    except Exception:
        traceback.print_exc()
        return 1
    print(f"seed {seed}: {generations} rebalances, no failure")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.groups", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this seed")
    parser.add_argument("--rebalances", type=int, default=100_000, help="total number of rebalances (default: 100000)")
    parser.add_argument("--first", type=int, default=0, help="first seed (default: 0)")
    parser.add_argument("--minutes", type=float, default=60.0, help="time limit in minutes (default: 60)")
    options = parser.parse_args()
    if options.seed is not None:
        return replay(options.seed)
    return look(options.first, options.rebalances, time.monotonic() + options.minutes * 60)


if __name__ == "__main__":
    sys.exit(main())
