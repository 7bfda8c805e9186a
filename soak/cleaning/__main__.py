"""Write, clean, read and check many random histories of a compacted log: `python -m soak.cleaning --help`.

Every history is played twice: with the compiled part of the cleaner and with its Python twin. A failure prints the
seed. `python -m soak.cleaning --first SEED --examples 1` replays the history.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor

from soak.cleaning.walks import walk

CHUNK = 50
BOTH = (True, False)


def live_through(first: int, count: int) -> tuple[int, list[str]]:
    """Play the histories of these seeds; return the number of cleaner passes and the failures."""
    logging.disable()
    passes, problems = 0, []
    for seed in range(first, first + count):
        try:
            passes += sum(walk(seed, use_native=use_native) for use_native in BOTH)
        except AssertionError as error:
            problems.append(str(error))
    return passes, problems


def results(first: int, examples: int, deadline: float) -> Iterator[tuple[int, int, list[str]]]:
    """Play chunks of seeds on all processors until the deadline; yield histories, passes and failures per chunk."""
    limit = 2 * (os.cpu_count() or 1)
    under_way: deque[tuple[int, Future[tuple[int, list[str]]]]] = deque()
    with ProcessPoolExecutor() as pool:
        for start in range(first, first + examples, CHUNK):
            if time.monotonic() > deadline:
                break
            count = min(CHUNK, first + examples - start)
            under_way.append((count, pool.submit(live_through, start, count)))
            if len(under_way) >= limit:
                done, future = under_way.popleft()
                yield done, *future.result()
        for done, future in under_way:
            yield done, *future.result()


def main() -> None:
    """Play histories, print the progress, and exit with status 1 after a failure."""
    parser = argparse.ArgumentParser(prog="python -m soak.cleaning", description=__doc__)
    parser.add_argument("--examples", type=int, default=100_000, help="number of histories (default: 100000)")
    parser.add_argument("--minutes", type=float, default=60.0, help="time limit in minutes (default: 60)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="first seed (default: 0)")
    options = parser.parse_args()
    began = reported_at = time.monotonic()
    lived = passes = 0
    problems: list[str] = []
    for count, more_passes, found in results(options.first, options.examples, began + options.minutes * 60):
        lived, passes, problems = lived + count, passes + more_passes, problems + found
        for problem in found:
            print(f"BROKEN {problem}", flush=True)
        if time.monotonic() - reported_at > 10:
            reported_at = time.monotonic()
            print(
                f"{lived} histories, {passes} passes, {len(problems)} broken, {reported_at - began:.0f} s", flush=True
            )
    seconds = time.monotonic() - began
    last = options.first + lived - 1
    print(
        f"{lived} histories (seeds {options.first} to {last}), {passes} passes, {len(problems)} broken, {seconds:.0f} s"
    )
    sys.exit(1 if problems or lived == 0 else 0)


if __name__ == "__main__":
    main()
