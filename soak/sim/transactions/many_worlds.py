"""Worlds of transactions by the hundred, in parts that two processes share: forty thousand acknowledged in all.

`make transactions` plays a million of them.
"""

from __future__ import annotations

from itertools import count

from soak.sim.transactions.scenario import play_seed

PARTS = 10
TRANSACTIONS = 40_000 // PARTS
"""Acknowledged ones, in each part."""
FIRST_SEED, SEEDS_OF_A_PART = 10_000, 1_000


def play_part(part: int) -> None:
    """Play seeds until so many transactions are acknowledged. A failing seed names the command that replays it."""
    acknowledged = 0
    for seed in count(FIRST_SEED + part * SEEDS_OF_A_PART):
        outcome = play_seed(seed)
        assert not outcome.violations, outcome.explain()
        acknowledged += outcome.acknowledged
        if acknowledged >= TRANSACTIONS:
            return
