"""The simulation proves itself: each planted bug is found within a bounded number of seeds."""

from __future__ import annotations

import pytest
from soak.sim.cluster.mutants import MAX_SEEDS, MUTANTS, Mutant, raise_the_high_watermark_past_followers
from tests.nightly import mark_rest_nightly

LEAST_MUTANTS = 30


def test_there_are_many_of_them() -> None:
    assert len(MUTANTS) >= LEAST_MUTANTS
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_one_is_found_at_once() -> None:
    (mutant,) = (one for one in MUTANTS if one.plant is raise_the_high_watermark_past_followers)
    assert mutant.seeds_to_find(20) is not None


@pytest.mark.verify
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mutant", mark_rest_nightly(MUTANTS, len(MUTANTS) // 2), ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    assert mutant.seeds_to_find(MAX_SEEDS) is not None, "no seed found it"
