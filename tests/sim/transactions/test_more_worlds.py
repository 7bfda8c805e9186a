"""The parts of forty thousand transactions that run at night."""

from __future__ import annotations

import pytest
from soak.sim.transactions.many_worlds import BY_DAY, PARTS, play_part


@pytest.mark.verify
@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(BY_DAY, PARTS))
def test_everything_is_copied_once_in_many_worlds(part: int) -> None:
    play_part(part)
