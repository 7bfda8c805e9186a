"""Hostile bytes against a live broker with a healthy client beside them; `python -m tests.hostile` is the long form."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.hostile.storm import storm


def test_a_short_storm_does_no_harm(tmp_path: Path) -> None:
    report = storm(tmp_path, frames=20_000, seconds=9, seed=11)
    print(report)
    assert not report.problems, report
    assert report.frames >= 1000, report


@pytest.mark.verify
@pytest.mark.timeout(900)
def test_a_longer_storm_does_no_harm(tmp_path: Path) -> None:
    report = storm(tmp_path, frames=100_000, seconds=600, seed=12)
    print(report)
    assert not report.problems, report
    assert report.frames >= 100_000, report
