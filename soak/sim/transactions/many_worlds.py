"""Hundreds of simulated runs with 40,000 acknowledged transactions in all, divided into parts for two processes.

`make transactions` plays a million transactions.
"""

from __future__ import annotations

from itertools import count

from soak.sim.transactions.scenario import play_seed

PARTS = 10
BY_DAY = 3
"""The parts that run by day; the others run at night."""
TRANSACTIONS = 40_000 // PARTS
"""The number of acknowledged transactions in each part."""
FIRST_SEED, SEEDS_OF_A_PART = 10_000, 1_000


def play_part(part: int) -> None:
    """Play seeds until `TRANSACTIONS` are acknowledged. A failure prints the command that replays the seed."""
    acknowledged = 0
    for seed in count(FIRST_SEED + part * SEEDS_OF_A_PART):
        outcome = play_seed(seed)
        assert not outcome.violations, outcome.explain()
        acknowledged += outcome.acknowledged
        if acknowledged >= TRANSACTIONS:
            return
