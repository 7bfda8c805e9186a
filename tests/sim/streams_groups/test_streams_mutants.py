"""The simulation of streams groups finds each planted bug within a bounded number of seeds."""

from __future__ import annotations

import pytest
from soak.sim.streams_groups.mutants import MAX_SEEDS, STREAMS_MUTANTS, StreamsMutant, assign_no_standby_tasks
from tests.nightly import mark_rest_nightly

LEAST_MUTANTS = 9


def test_there_are_many_planted_bugs() -> None:
    assert len({mutant.name for mutant in STREAMS_MUTANTS}) >= LEAST_MUTANTS


def test_a_planted_bug_is_found_immediately() -> None:
    (mutant,) = (one for one in STREAMS_MUTANTS if one.plant is assign_no_standby_tasks)
    assert mutant.seeds_to_find(2) is not None


@pytest.mark.verify
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "mutant", mark_rest_nightly(STREAMS_MUTANTS, len(STREAMS_MUTANTS) // 2), ids=lambda mutant: mutant.name
)
def test_a_planted_bug_is_found(mutant: StreamsMutant) -> None:
    assert mutant.seeds_to_find(MAX_SEEDS) is not None, "no seed found it"
