"""One seed replayed, or one after the other until one fails, there have been enough, or the time is over.

With `--progress FILE` what was played is kept there, and the next call goes on behind it.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.sim.outcome import Outcome


@dataclass
class Progress:
    """What has been played so far, by all calls together."""

    next_seed: int
    played: int = 0
    acknowledged: int = 0
    simulated_seconds: float = 0.0
    spent_seconds: float = 0.0
    failed: list[int] = field(default_factory=list)

    @classmethod
    def load(cls, file: Path | None, first: int) -> Progress:
        """What the file holds, or nothing yet."""
        if file is None or not file.exists():
            return cls(first)
        return cls(**json.loads(file.read_text()))

    def save(self, file: Path | None) -> None:
        """Into the file, if there is one."""
        if file is not None:
            file.write_text(json.dumps(asdict(self)) + "\n")

    def add(self, outcome: Outcome[Any], spent: float) -> None:
        """One more seed."""
        self.next_seed += 1
        self.played += 1
        self.acknowledged += outcome.acknowledged
        self.simulated_seconds += outcome.seconds
        self.spent_seconds += spent
        if outcome.violations:
            self.failed.append(outcome.plan.seed)

    def __str__(self) -> str:
        return (
            f"{self.played} seeds, {len(self.failed)} failed {self.failed or ''}, {self.acknowledged} acknowledged, "
            f"{self.simulated_seconds:.0f} s simulated in {self.spent_seconds:.0f} s"
        )


def search_parser(prog: str, description: str | None) -> argparse.ArgumentParser:
    """What every search can be told."""
    parser = argparse.ArgumentParser(prog=f"python -m {prog}", description=description)
    parser.add_argument("--seed", type=int, help="one run, with what the brokers log if --verbose")
    parser.add_argument("--first", type=int, default=0, help="the first seed of many")
    parser.add_argument("--minutes", type=float, default=10.0, help="stop after this time")
    parser.add_argument("--progress", type=Path, help="where to go on from, and to keep how far it came")
    parser.add_argument("--verbose", action="store_true", help="show what brokers and clients log")
    return parser


def search(
    options: argparse.Namespace, play: Callable[[int], Outcome[Any]], is_enough: Callable[[Progress], bool]
) -> int:
    """Do what the options of `search_parser` say; what the process exits with."""
    if options.verbose:
        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    else:
        logging.disable(logging.CRITICAL)
    if options.seed is not None:
        outcome = play(options.seed)
        print(outcome.explain())
        return 1 if outcome.violations else 0
    progress = Progress.load(options.progress, options.first)
    began = time.monotonic()
    while not is_enough(progress) and time.monotonic() - began < options.minutes * 60:
        start = time.monotonic()
        outcome = play(progress.next_seed)
        progress.add(outcome, time.monotonic() - start)
        progress.save(options.progress)
        if outcome.violations:
            print(outcome.explain(), flush=True)
    print(progress)
    return 1 if progress.failed else 0
