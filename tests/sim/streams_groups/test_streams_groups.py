"""Streams groups under simulation: each task has one active owner at a time, and all owners at the end.

A failing seed names the command that replays it: `python -m soak.sim.streams_groups --seed N`.
"""

from __future__ import annotations

import pytest
from soak.sim.streams_groups.plan import StreamsPlan
from soak.sim.streams_groups.scenario import play

FEW = range(3)
MANY = range(100, 115)


@pytest.mark.parametrize("seed", FEW)
def test_each_task_has_one_active_owner(seed: int) -> None:
    outcome = play(StreamsPlan.draw(seed, quick=True))
    assert not outcome.violations, outcome.explain()
    assert outcome.acknowledged > 0


@pytest.mark.verify
@pytest.mark.timeout(900)
@pytest.mark.parametrize("brokers", [1, 3])
def test_each_task_has_one_active_owner_in_many_worlds(brokers: int) -> None:
    for seed in MANY:
        outcome = play(StreamsPlan.draw(seed, quick=True, brokers=brokers))
        assert not outcome.violations, outcome.explain()


def test_a_seed_repeats_the_run_exactly() -> None:
    plan = StreamsPlan.draw(5, quick=True)
    first, again = play(plan), play(plan)
    assert (first.digest, first.steps) == (again.digest, again.steps)
