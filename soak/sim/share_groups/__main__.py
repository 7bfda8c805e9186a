"""`python -m soak.sim.share_groups --seed 7` replays a run; `--seeds 1000 --minutes 60` searches for a failure."""

from __future__ import annotations

import sys

from soak.sim.search import search_seeds
from soak.sim.share_groups.scenario import play_seed

if __name__ == "__main__":
    sys.exit(search_seeds("soak.sim.share_groups", __doc__, play_seed))
