"""Hostile bytes against a live broker with a healthy client beside them; `python -m soak.hostile` is the long form."""

from __future__ import annotations

from pathlib import Path

import pytest
from soak.hostile.attacked_broker import AttackerKind
from soak.hostile.storm import storm
from tests.nightly import mark_rest_nightly

each_kind = pytest.mark.parametrize("kind", AttackerKind, ids=lambda kind: kind.value)


@each_kind
def test_a_short_storm_does_no_harm(tmp_path: Path, kind: AttackerKind) -> None:
    report = storm(tmp_path, frames=3000, seconds=60, seed=11, kind=kind)
    print(report)
    assert not report.problems, report
    assert report.frames >= 3000, report


@each_kind
@pytest.mark.verify
@pytest.mark.timeout(900)
@pytest.mark.parametrize("frames", mark_rest_nightly((30_000, 100_000), 1))
def test_a_longer_storm_does_no_harm(tmp_path: Path, kind: AttackerKind, frames: int) -> None:
    report = storm(tmp_path, frames=frames, seconds=600, seed=12, kind=kind)
    print(report)
    assert not report.problems, report
    assert report.frames >= frames, report
