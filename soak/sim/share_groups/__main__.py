"""Search for a failing run with share groups: `python -m soak.sim.share_groups --seeds 1000 --minutes 60`.

`--seed 7` replays one run.
"""

from __future__ import annotations

import sys

from soak.sim.search import search_seeds
from soak.sim.share_groups.scenario import play_seed

if __name__ == "__main__":
    sys.exit(search_seeds("soak.sim.share_groups", __doc__, play_seed))
