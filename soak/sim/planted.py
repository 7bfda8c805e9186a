"""Planted bugs (mutants), which a simulation must find."""

from __future__ import annotations

import argparse
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


@dataclass(frozen=True, slots=True)
class PlantedBug(ABC):
    """A bug, its source, and the faults that reveal the bug."""

    plant: Plant
    source: str
    faults: frozenset[str]

    @property
    def name(self) -> str:
        """Return the name of the bug as words."""
        return self.plant.__name__.replace("_", " ")

    @abstractmethod
    def violations(self, seed: int) -> list[str]:
        """Return the violations of a seed under these faults. The bug is already planted."""

    def seeds_to_find(self, most: int) -> tuple[int, str] | None:
        """Return the number of seeds until the first violation, and the violation; None after `most` seeds."""
        for seed in range(most):
            with pytest.MonkeyPatch.context() as patch:
                self.plant(patch)
                violations = self.violations(seed)
            if violations:
                return seed + 1, violations[0]
        return None


def print_table(prog: str, description: str | None, bugs: Iterable[PlantedBug], most: int) -> int:
    """Parse the command line, plant each bug, and print the number of seeds until the bug is found."""
    parser = argparse.ArgumentParser(prog=f"python -m {prog}", description=description)
    parser.add_argument("--only", default="", help="plant only bugs whose names contain this text")
    parser.add_argument("--seeds", type=int, default=most)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    unfound = 0
    print("| planted bug | as in | seeds to find it | seconds | first violation |\n|---|---|---|---|---|", flush=True)
    for bug in bugs:
        if options.only in bug.name:
            began = time.process_time()
            found = bug.seeds_to_find(options.seeds)
            unfound += found is None
            seeds, sign = found or ("-", f"not found in {options.seeds}")
            spent = time.process_time() - began
            print(f"| {bug.name} | {bug.source} | {seeds} | {spent:.0f} | {sign[:90]} |", flush=True)
    return 1 if unfound else 0
