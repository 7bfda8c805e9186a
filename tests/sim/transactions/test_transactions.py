"""Exactly once under simulation: whoever dies, comes back or comes late, each record is copied once or not at all.

A failing seed names the command that replays it: `python -m soak.sim.transactions --seed N`.
"""

from __future__ import annotations

import pytest
from soak.sim.transactions.mutants import DEATHS_OF_BROKERS, MANY_COPY
from soak.sim.transactions.plan import TransactionPlan
from soak.sim.transactions.scenario import play

NO_FAULTS = frozenset[str]()
FEW = range(30, 37)


@pytest.mark.parametrize("version", [0, 2])
def test_copiers_without_faults(version: int) -> None:
    plan = TransactionPlan.draw(1, quick=True).with_faults(NO_FAULTS, version=version, linger=0.0, copiers=2)
    outcome = play(plan)
    assert not outcome.violations, outcome.explain()
    assert outcome.acknowledged > 10


@pytest.mark.parametrize("seed", FEW)
def test_everything_is_copied_once(seed: int) -> None:
    outcome = play(TransactionPlan.draw(seed, quick=True))
    assert not outcome.violations, outcome.explain()
    assert outcome.acknowledged > 0


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.verify) for seed in range(2, 20))])
def test_no_fatal_error_reaches_an_application_whose_brokers_die(seed: int, version: int) -> None:
    plan = TransactionPlan.draw(seed, quick=True, brokers=3)
    plan = plan.with_faults(DEATHS_OF_BROKERS, **{**MANY_COPY, "version": version})
    assert plan.only_brokers_die
    outcome = play(plan)
    assert not outcome.violations, outcome.explain()
    assert outcome.acknowledged > 0


def test_a_seed_replays_exactly() -> None:
    plan, other = TransactionPlan.draw(33, quick=True), TransactionPlan.draw(36, quick=True)
    first, again = play(plan), play(plan)
    assert (first.digest, first.steps) == (again.digest, again.steps)
    assert play(other).digest != first.digest
