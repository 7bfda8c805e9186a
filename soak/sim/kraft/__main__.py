"""`python -m soak.sim.kraft --seed 7` replays a KRaft cluster; `--seeds 3000 --minutes 60` looks for a failure."""

from __future__ import annotations

import sys

from soak.sim.kraft.scenario import play_seed
from soak.sim.search import search_seeds

if __name__ == "__main__":
    sys.exit(search_seeds("soak.sim.kraft", __doc__, play_seed))
