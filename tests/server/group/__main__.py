"""`python -m tests.server.group --rebalances 100000` looks for a seed of the groups' life in which something breaks.

`--seed 7` replays one; `--minutes 5` stops after that time, and the last line says which seed comes next.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback

from tests.server.group.group_life import play_seed

ENOUGH = 10
"""So many failed seeds say what there is to say."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.server.group", description=__doc__)
    parser.add_argument("--seed", type=int, help="one run")
    parser.add_argument("--rebalances", type=int, default=100_000, help="how many in all (default 100000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after this time")
    options = parser.parse_args()
    logging.getLogger("barnabas").setLevel(logging.ERROR)
    first = seed = options.first if options.seed is None else options.seed
    began, rebalances, failed = time.monotonic(), 0, 0
    while time.monotonic() - began < options.minutes * 60 and rebalances < options.rebalances and failed < ENOUGH:
        try:
            rebalances += len(play_seed(seed).generations)
        except Exception as error:
            failed += 1
            if options.seed is not None:
                traceback.print_exc()
            print(f"seed {seed}: {type(error).__name__}: {error}")
            print(f"   replay: python -m tests.server.group --seed {seed}")
        seed += 1
        if options.seed is not None:
            break
    spent = time.monotonic() - began
    print(f"{rebalances} rebalances in {seed - first} seeds, {failed} failed, {spent:.0f} s; next: --first {seed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
