"""The simulation of transactions proves itself: each planted bug is found within a bounded number of seeds."""

from __future__ import annotations

import pytest
from soak.sim.transactions.mutants import (
    MAX_SEEDS,
    TRANSACTION_MUTANTS,
    TransactionMutant,
    keep_offsets_of_aborted_transactions,
)
from tests.nightly import mark_rest_nightly

LEAST_MUTANTS = 10


def test_there_are_many_of_them() -> None:
    assert len({mutant.name for mutant in TRANSACTION_MUTANTS}) >= LEAST_MUTANTS


def test_one_is_found_at_once() -> None:
    (mutant,) = (one for one in TRANSACTION_MUTANTS if one.plant is keep_offsets_of_aborted_transactions)
    assert mutant.seeds_to_find(20) is not None


@pytest.mark.verify
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "mutant", mark_rest_nightly(TRANSACTION_MUTANTS, len(TRANSACTION_MUTANTS) // 2), ids=lambda mutant: mutant.name
)
def test_a_planted_bug_is_found(mutant: TransactionMutant) -> None:
    assert mutant.seeds_to_find(MAX_SEEDS) is not None, "no seed found it"
