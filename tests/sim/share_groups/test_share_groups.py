"""Share groups under simulation: each record is delivered to one member at a time, until it is finished.

A failing seed names the command that replays it: `python -m soak.sim.share_groups --seed N`.
"""

from __future__ import annotations

import pytest
from soak.sim.share_groups.plan import SharePlan
from soak.sim.share_groups.scenario import play

FEW = range(3)
MANY = range(100, 112)


@pytest.mark.parametrize("seed", FEW)
def test_records_are_finished_once(seed: int) -> None:
    outcome = play(SharePlan.draw(seed, quick=True))
    assert not outcome.violations, outcome.explain()
    assert outcome.acknowledged > 0


@pytest.mark.verify
@pytest.mark.timeout(900)
@pytest.mark.parametrize("brokers", [1, 3])
def test_records_are_finished_once_in_many_worlds(brokers: int) -> None:
    for seed in MANY:
        outcome = play(SharePlan.draw(seed, quick=True, brokers=brokers))
        assert not outcome.violations, outcome.explain()


def test_a_seed_repeats_the_run_exactly() -> None:
    plan = SharePlan.draw(4, quick=True)
    first, again = play(plan), play(plan)
    assert (first.digest, first.steps) == (again.digest, again.steps)
