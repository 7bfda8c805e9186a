"""Hostile bytes against a live broker with a healthy client beside them; `python -m soak.hostile` is the long form."""

from __future__ import annotations

from pathlib import Path

import pytest
from soak.hostile.besieged import Who
from soak.hostile.storm import storm
from tests.nightly import mark_rest_nightly

anyone = pytest.mark.parametrize("who", Who, ids=lambda who: who.value)


@anyone
def test_a_short_storm_does_no_harm(tmp_path: Path, who: Who) -> None:
    report = storm(tmp_path, frames=3000, seconds=60, seed=11, who=who)
    print(report)
    assert not report.problems, report
    assert report.frames >= 3000, report


@anyone
@pytest.mark.verify
@pytest.mark.timeout(900)
@pytest.mark.parametrize("frames", mark_rest_nightly((30_000, 100_000), 1))
def test_a_longer_storm_does_no_harm(tmp_path: Path, who: Who, frames: int) -> None:
    report = storm(tmp_path, frames=frames, seconds=600, seed=12, who=who)
    print(report)
    assert not report.problems, report
    assert report.frames >= frames, report
