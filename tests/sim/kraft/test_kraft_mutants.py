"""The simulation of KRaft clusters finds each planted bug within a bounded number of seeds."""

from __future__ import annotations

import pytest
from soak.sim.kraft.mutants import KRAFT_MUTANTS, MOST_SEEDS, KRaftMutant, ignore_fencing
from tests.nightly import mark_rest_nightly

LEAST_MUTANTS = 15


def test_there_are_many_planted_bugs() -> None:
    assert len({mutant.name for mutant in KRAFT_MUTANTS}) >= LEAST_MUTANTS


def test_a_planted_bug_is_found_immediately() -> None:
    (mutant,) = (one for one in KRAFT_MUTANTS if one.plant is ignore_fencing)
    assert mutant.seeds_to_find(3) is not None


@pytest.mark.verify
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "mutant", mark_rest_nightly(KRAFT_MUTANTS, len(KRAFT_MUTANTS) // 2), ids=lambda mutant: mutant.name
)
def test_a_planted_bug_is_found(mutant: KRaftMutant) -> None:
    assert mutant.seeds_to_find(MOST_SEEDS) is not None, "no seed found it"
