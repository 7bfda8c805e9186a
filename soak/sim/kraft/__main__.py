"""`python -m soak.sim.kraft --seed 7` replays a KRaft cluster; `--seeds 3000 --minutes 60` looks for a failure."""

from __future__ import annotations

import sys
from functools import partial

from soak.sim.kraft.scenario import play_seed
from soak.sim.search import search, search_parser


def main() -> int:
    parser = search_parser("soak.sim.kraft", __doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many runs, those before included (default 100)")
    parser.add_argument("--quick", action="store_true", help="short runs, as in the tests")
    options = parser.parse_args()
    return search(
        options,
        partial(play_seed, quick=options.quick),
        lambda progress: progress.played >= options.seeds,
    )


if __name__ == "__main__":
    sys.exit(main())
