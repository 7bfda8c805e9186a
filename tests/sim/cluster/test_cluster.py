"""Whole clusters under simulation: nothing acknowledged is lost, doubled or reordered, and all replicas end equal.

A failing seed names the command that replays it: `python -m soak.sim.cluster --seed N`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from soak.sim.cluster.plan import BEFORE, ClusterPlan
from soak.sim.cluster.scenario import play
from tests.nightly import mark_rest_nightly

from barnabas.simulation.nemesis import NEEDS_DISK

NO_FAULTS = frozenset[str]()
FEW = range(30)
MANY = range(1000, 1150)


def test_a_cluster_without_faults() -> None:
    outcome = play(ClusterPlan.draw(3, quick=True).with_faults(NO_FAULTS))
    assert not outcome.violations, outcome.explain()
    assert outcome.acknowledged > 20
    assert outcome.lives >= outcome.plan.brokers


def test_clients_that_know_topics_by_id_are_served_where_brokers_do_not() -> None:
    """Before 2.8 no order tells the id of a topic: a controller that told clients sent them to leaders without it."""
    plan = ClusterPlan.draw(3, quick=True).with_faults(NO_FAULTS)
    outcome = play(replace(plan, settings=plan.settings | {"inter.broker.protocol.version": BEFORE}))
    assert not outcome.violations, outcome.explain()
    assert outcome.acknowledged > 20


def test_what_acks_1_has_written_is_not_looked_for_where_power_is_lost() -> None:
    """A disk that dies takes the machine's memory along, too, where acks=all does not count on that."""
    plans = [ClusterPlan.draw(seed) for seed in range(300)]
    plans += [plan.with_faults(frozenset({"disk dies"})) for plan in plans]
    dying = [plan for plan in plans if plan.settings["acks.all.durability"] == "disk" and "disk dies" in plan.faults]
    assert dying
    assert {kind.acks for plan in dying for kind in plan.kinds} == {"all"}
    others = [plan for plan in plans if not plan.faults & {"disk dies", *NEEDS_DISK}]
    assert {kind.acks for plan in others for kind in plan.kinds} == {"all", 1}


@pytest.mark.parametrize("seed", FEW)
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    outcome = play(ClusterPlan.draw(seed, quick=True))
    assert not outcome.violations, outcome.explain()
    assert outcome.acknowledged > 0


def test_a_seed_replays_exactly() -> None:
    plan, other = ClusterPlan.draw(8, quick=True), ClusterPlan.draw(9, quick=True)
    first, again = play(plan), play(plan)
    assert (first.digest, first.steps) == (again.digest, again.steps)
    assert play(other).digest != first.digest


@pytest.mark.verify
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", mark_rest_nightly(range(MANY.start, MANY.stop, 10), 6))
def test_nothing_acknowledged_is_lost_in_many_worlds(first: int) -> None:
    for seed in range(first, first + 10):
        outcome = play(ClusterPlan.draw(seed))
        assert not outcome.violations, outcome.explain()
