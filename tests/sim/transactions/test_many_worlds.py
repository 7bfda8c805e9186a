"""The first half of forty thousand transactions."""

from __future__ import annotations

import pytest
from soak.sim.transactions.many_worlds import PARTS, play_part


@pytest.mark.verify
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(PARTS // 2))
def test_everything_is_copied_once_in_many_worlds(part: int) -> None:
    play_part(part)
