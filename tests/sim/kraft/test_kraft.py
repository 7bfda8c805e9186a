"""KRaft clusters under simulation: brokers apply the committed metadata, and lose no acknowledged record.

A failing seed names the command that replays it: `python -m soak.sim.kraft --seed N`.
"""

from __future__ import annotations

import pytest
from soak.sim.kraft.plan import KRaftPlan
from soak.sim.kraft.scenario import play

FEW = range(6)
MANY = range(100, 125)


@pytest.mark.parametrize("seed", FEW)
def test_brokers_follow_the_quorum(seed: int) -> None:
    outcome = play(KRaftPlan.draw(seed, quick=True))
    assert not outcome.violations, outcome.explain()
    assert outcome.acknowledged > 0


@pytest.mark.verify
@pytest.mark.timeout(900)
def test_brokers_follow_the_quorum_in_many_worlds() -> None:
    for seed in MANY:
        outcome = play(KRaftPlan.draw(seed))
        assert not outcome.violations, outcome.explain()


def test_a_cluster_without_faults() -> None:
    outcome = play(KRaftPlan.draw(3, quick=True).with_faults(frozenset()))
    assert not outcome.violations, outcome.explain()
    assert outcome.lives == outcome.plan.brokers
    assert outcome.acknowledged > 20


def test_a_seed_repeats_the_run_exactly() -> None:
    plan = KRaftPlan.draw(5, quick=True)
    first, again = play(plan), play(plan)
    assert (first.digest, first.steps) == (again.digest, again.steps)
