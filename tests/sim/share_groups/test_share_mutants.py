"""The simulation of share groups finds each planted bug within a bounded number of seeds."""

from __future__ import annotations

import pytest
from soak.sim.share_groups.mutants import MAX_SEEDS, SHARE_MUTANTS, ShareMutant, lose_released_records
from tests.nightly import mark_rest_nightly

LEAST_MUTANTS = 15


def test_there_are_many_planted_bugs() -> None:
    assert len({mutant.name for mutant in SHARE_MUTANTS}) >= LEAST_MUTANTS


def test_a_planted_bug_is_found_immediately() -> None:
    (mutant,) = (one for one in SHARE_MUTANTS if one.plant is lose_released_records)
    assert mutant.seeds_to_find(3) is not None


@pytest.mark.verify
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "mutant", mark_rest_nightly(SHARE_MUTANTS, len(SHARE_MUTANTS) // 2), ids=lambda mutant: mutant.name
)
def test_a_planted_bug_is_found(mutant: ShareMutant) -> None:
    assert mutant.seeds_to_find(MAX_SEEDS) is not None, "no seed found it"
