"""The search for a failing seed: side by side as one after the other, each seed once, whatever order they end in."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from soak.sim.outcome import Outcome
from soak.sim.search import Progress, search, search_parser
from soak.sim.transactions.plan import TransactionPlan

FAILS = 12


def fake_play(seed: int) -> Outcome[Any]:
    """A run of no time that fails for one seed."""
    plan = TransactionPlan.draw(seed, quick=True).with_faults(frozenset({"kill"} if seed % 2 else ()))
    return Outcome(
        plan=plan,
        command="",
        summary="",
        violations=["lost"] if seed == FAILS else [],
        done=[],
        acknowledged=seed,
        lives=1,
        steps=1,
        seconds=1.0,
        digest="",
    )


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    level = logging.root.manager.disable
    yield
    logging.disable(level)


def test_seeds_that_end_out_of_order_are_played_once() -> None:
    progress = Progress(5)
    for seed in (5, 8, 7):
        progress.add(fake_play(seed), 0.5)
    assert (progress.next_seed, progress.ahead) == (6, [8, 7])
    assert list(islice(progress.seeds(), 3)) == [6, 9, 10]
    progress.add(fake_play(6), 0.5)
    assert (progress.next_seed, progress.ahead) == (9, [])
    assert (progress.played, progress.acknowledged, progress.spent_seconds) == (4, 26, 2.0)
    assert progress.acknowledged_under == {"kill": 12, "none": 14}


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_search_goes_on_behind_the_last_one(tmp_path: Path, jobs: int) -> None:
    file = tmp_path / "progress.json"
    options = search_parser("soak.sim", None).parse_args(["--first", "5", "--progress", str(file)])
    assert search(options, fake_play, lambda progress: progress.played >= 4) == 0
    before = json.loads(file.read_text())
    assert (before["played"], before["next_seed"]) == (4, 9)
    options.jobs = jobs
    assert search(options, fake_play, lambda progress: progress.played >= 10) == 1
    after = Progress.load(file, 0)
    assert after.failed == [FAILS]
    assert after.next_seed == 5 + after.played
    assert after.acknowledged == sum(range(5, after.next_seed))
