"""`python -m soak.groups --rebalances 100000` looks for a seed in which groups' life goes wrong.

All processors look. `--seed 7` replays one seed; `--minutes 5` begins no more after that time, and the last line says
which seed comes next.
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
"""So many failed seeds say what there is to say."""
TELL_S = 10.0

Lived = tuple[int, int, str]
"""A seed, how many rebalances it had, and what broke in it."""


def live_through(seed: int) -> Lived:
    """One seed, in whatever process."""
    logging.getLogger("barnabas").setLevel(logging.ERROR)
    try:
        return seed, len(play_seed(seed).generations), ""
    except Exception as error:
        return seed, 0, f"{type(error).__name__}: {error}"


def lives(first: int, pool: ProcessPoolExecutor, deadline: float) -> Iterator[Lived]:
    """Seeds from the first one on, in their order, until the deadline; what has begun is lived to its end."""
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
    """Look until there were so many rebalances. Says how far it is now and then; returns 1 if a seed failed."""
    began = told = time.monotonic()
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
            if time.monotonic() - told > TELL_S:
                told = time.monotonic()
                print(f"{counted} rebalances in {lived} seeds, {failed} failed, {told - began:.0f} s", flush=True)
        pool.shutdown(cancel_futures=True)
    spent = time.monotonic() - began
    print(f"{counted} rebalances in {lived} seeds, {failed} failed, {spent:.0f} s; next: --first {first + lived}")
    return 1 if failed or not lived else 0


def replay(seed: int) -> int:
    """One seed, with the traceback of what breaks; returns 1 if it does."""
    logging.getLogger("barnabas").setLevel(logging.ERROR)
    try:
        generations = len(play_seed(seed).generations)
    except Exception:
        traceback.print_exc()
        return 1
    print(f"seed {seed}: {generations} rebalances, nothing broke")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.groups", description=__doc__)
    parser.add_argument("--seed", type=int, help="one run")
    parser.add_argument("--rebalances", type=int, default=100_000, help="how many in all (default 100000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin none after this time")
    options = parser.parse_args()
    if options.seed is not None:
        return replay(options.seed)
    return look(options.first, options.rebalances, time.monotonic() + options.minutes * 60)


if __name__ == "__main__":
    sys.exit(main())
