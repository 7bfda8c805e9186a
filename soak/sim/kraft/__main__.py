"""Search for a failing run of a simulated KRaft cluster: `python -m soak.sim.kraft --seeds 3000 --minutes 60`.

`--seed 7` replays one run.
"""

from __future__ import annotations

import sys

from soak.sim.kraft.scenario import play_seed
from soak.sim.search import search_seeds

if __name__ == "__main__":
    sys.exit(search_seeds("soak.sim.kraft", __doc__, play_seed))
