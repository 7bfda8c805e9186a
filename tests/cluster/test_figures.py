"""How long clients wait when a broker goes: bounds that a loaded machine keeps, far above what is seen else."""

from __future__ import annotations

from pathlib import Path

import pytest
from soak.cluster.figures import measure

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(400)]

MAX_S = 15.0


def test_nobody_waits_long(tmp_path: Path) -> None:
    seen = measure(tmp_path)
    assert all(0 < seconds < MAX_S for seconds in seen.values()), seen
