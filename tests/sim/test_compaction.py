"""The cleaner under seeded faults: what was acknowledged is what a reader of the compacted topic ends with."""

from __future__ import annotations

import pytest
from soak.sim.compaction import play_compacted
from tests.nightly import mark_rest_nightly

FEW = range(4)
MANY = range(2000, 2100)


@pytest.mark.parametrize("seed", FEW)
def test_the_last_value_of_each_key_is_never_lost(seed: int) -> None:
    violations, history = play_compacted(seed)
    assert not violations, (seed, violations[:5])
    assert history.acknowledged


def test_the_cleaner_has_work_to_do() -> None:
    """Without passes that take something away the runs would show nothing."""
    _, history = play_compacted(0)
    assert history.touched
    assert len(history.final) < len(history.acknowledged) / 2


@pytest.mark.verify
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", mark_rest_nightly(range(MANY.start, MANY.stop, 10), 4))
def test_the_last_value_is_never_lost_in_many_worlds(first: int) -> None:
    for seed in range(first, first + 10):
        violations, _ = play_compacted(seed)
        assert not violations, (seed, violations[:5])
