"""Search for a failing run of a simulated broker: `python -m soak.sim --seeds 1000 --minutes 10`.

`--seed 7` replays one run.
"""

from __future__ import annotations

import sys
from functools import partial

from soak.sim.scenario import play
from soak.sim.search import search, search_parser


def main() -> int:
    parser = search_parser("soak.sim", __doc__)
    parser.add_argument("--seeds", type=int, default=100, help="number of runs (default: 100)")
    parser.add_argument(
        "--durability",
        choices=["disk", "page-cache"],
        default="disk",
        help="acks.all.durability of the broker (default: disk)",
    )
    options = parser.parse_args()
    return search(
        options,
        partial(play, durability=options.durability),
        lambda progress: progress.played >= options.seeds,
    )


if __name__ == "__main__":
    sys.exit(main())
