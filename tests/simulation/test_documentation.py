"""The example of docs/simulation.md finds a lost commit, and its remedy loses none."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "simulation.md").read_text()
EXAMPLE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
PLAYED = re.compile(r"^simulate\((\w+)\((\w+)\), seeds=\d+\)$", re.MULTILINE)


def play(biller: str, seeds: int) -> subprocess.CompletedProcess[str]:
    """In a process where sets of texts are always in the same order."""
    calls = {found[2]: f"simulate({found[1]}({found[2]}), seeds={seeds})" for found in PLAYED.finditer(EXAMPLE)}
    assert calls.keys() == {"careless", "careful"}
    code = f"import logging; logging.disable()\n{PLAYED.sub('', EXAMPLE)}\n{calls[biller]}"
    environment = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT / ".src")}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=1000)


def test_the_lost_commit_is_found() -> None:
    said = play("careless", 100).stderr
    assert re.search(r"SimulationError: seed \d+ fails after .* committed, and never billed: \{b'order \d+", said)
    assert re.search(r"\d kill program\n", said)
    assert "repeat it with seeds=[" in said


@pytest.mark.verify
@pytest.mark.timeout(1000)
def test_the_remedy_loses_none() -> None:
    done = play("careful", 50)
    assert done.returncode == 0, done.stderr
