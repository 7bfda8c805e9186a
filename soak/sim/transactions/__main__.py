"""Search for a failing run with transactions: `python -m soak.sim.transactions --transactions 1000000`.

`--seed 7` replays one run.
"""

from __future__ import annotations

import sys
from functools import partial

from soak.sim.search import search, search_parser
from soak.sim.transactions.scenario import play_seed


def main() -> int:
    parser = search_parser("soak.sim.transactions", __doc__)
    parser.add_argument("--transactions", type=int, default=10_000, help="acknowledged transactions (default: 10000)")
    parser.add_argument("--quick", action="store_true", help="play short runs, as in the tests")
    options = parser.parse_args()
    return search(
        options,
        partial(play_seed, quick=options.quick),
        lambda progress: progress.acknowledged >= options.transactions,
    )


if __name__ == "__main__":
    sys.exit(main())
