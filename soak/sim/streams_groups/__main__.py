"""Search for a failing run with a streams group: `python -m soak.sim.streams_groups --seeds 1000 --minutes 60`.

`--seed 7` replays one run.
"""

from __future__ import annotations

import sys

from soak.sim.search import search_seeds
from soak.sim.streams_groups.scenario import play_seed

if __name__ == "__main__":
    sys.exit(search_seeds("soak.sim.streams_groups", __doc__, play_seed))
