"""Followers killed with SIGKILL: the table has each record once after every round."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.table.conftest import ALL_FORMATS, location

from barnabas import Broker

ROUNDS = 3
"""Of each format in `make verify`; `BARNABAS_KILL_ROUNDS` changes it."""


def run_rounds(broker: Broker, topic: str, to: str, rounds: int, mode: str = "append") -> None:
    seed = int(os.environ.get("BARNABAS_SEED", "1"))
    command = [
        sys.executable,
        "-m",
        "tests.table.kill_rounds",
        broker.bootstrap,
        topic,
        to,
        str(rounds),
        str(seed),
        mode,
    ]
    found = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert found.stdout.splitlines()[-1:] == ["ok"], found.stdout + found.stderr


@pytest.mark.verify
@pytest.mark.parametrize("kind", ALL_FORMATS)
def test_a_killed_follower_continues(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    run_rounds(broker, topic, location(kind, tmp_path), ROUNDS)


@pytest.mark.verify
@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ALL_FORMATS)
def test_a_follower_killed_at_each_step_continues(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    run_rounds(broker, topic, location(kind, tmp_path), int(os.environ.get("BARNABAS_KILL_ROUNDS", "60")))


@pytest.mark.verify
@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ALL_FORMATS)
def test_upserts_of_a_killed_follower_continue(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    rounds = int(os.environ.get("BARNABAS_KILL_ROUNDS", "40"))
    run_rounds(broker, topic, location(kind, tmp_path), rounds, "upsert")
