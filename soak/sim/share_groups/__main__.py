"""`python -m soak.sim.share_groups --seed 7` replays a run; `--seeds 1000 --minutes 60` searches for a failure."""

from __future__ import annotations

import sys
from functools import partial

from soak.sim.search import search, search_parser
from soak.sim.share_groups.scenario import play_seed


def main() -> int:
    parser = search_parser("soak.sim.share_groups", __doc__)
    parser.add_argument("--seeds", type=int, default=100, help="number of runs, with the earlier ones (default 100)")
    parser.add_argument("--quick", action="store_true", help="short runs, as in the tests")
    options = parser.parse_args()
    return search(
        options,
        partial(play_seed, quick=options.quick),
        lambda progress: progress.played >= options.seeds,
    )


if __name__ == "__main__":
    sys.exit(main())
