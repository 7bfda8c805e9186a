"""Three rounds of the faults of `python -m soak.kraft`."""

from __future__ import annotations

from pathlib import Path

import pytest
from soak.kraft.__main__ import outcomes
from soak.kraft.rounds import BROKER_ROLES, OF_BROKERS, OF_CONTROLLERS, Plan

ROUNDS = (1, 2, 7)
"""The active controller killed, the leader of a partition killed, Kafka's broker cut from the controllers."""


def test_rounds_have_all_faults() -> None:
    drawn = {(fault.role, fault.what) for number in range(500) for fault in Plan.draw(number).faults}
    assert drawn == {(role, what) for role in BROKER_ROLES for what in OF_BROKERS} | {
        ("controller", what) for what in OF_CONTROLLERS
    }
    assert Plan.draw(7) == Plan.draw(7) != Plan.draw(8)


@pytest.mark.java
@pytest.mark.verify
@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost_in_a_kraft_cluster(tmp_path: Path) -> None:
    failed = {str(one.plan): one.violations[:5] for one in outcomes(ROUNDS, tmp_path) if one.violations}
    assert not failed, failed
