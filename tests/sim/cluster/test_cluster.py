"""Whole clusters under simulation: nothing acknowledged is lost, doubled or reordered, and all replicas end equal."""

from __future__ import annotations

import pytest
from tests.sim.cluster.plan import ClusterPlan
from tests.sim.cluster.scenario import ClusterOutcome, play

NO_FAULTS = frozenset[str]()


def explain(outcome: ClusterOutcome) -> str:
    command = f"python -m tests.sim.cluster --seed {outcome.plan.seed}"
    return "\n".join([*outcome.violations[:10], *outcome.done[-30:], f"replay: {command}"])


@pytest.mark.parametrize("seed", [3, 5])
def test_a_cluster_without_faults(seed: int) -> None:
    outcome = play(ClusterPlan.draw(seed, quick=True).with_faults(NO_FAULTS))
    assert not outcome.violations, explain(outcome)
    assert outcome.acknowledged > 100
    assert outcome.lives >= outcome.plan.brokers


def test_a_seed_replays_exactly() -> None:
    plan, other = ClusterPlan.draw(8, quick=True), ClusterPlan.draw(9, quick=True)
    first, again = play(plan), play(plan)
    assert (first.digest, first.steps) == (again.digest, again.steps)
    assert play(other).digest != first.digest
