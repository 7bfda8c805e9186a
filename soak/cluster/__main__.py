"""Kill, pause and cut off three brokers and a real ZooKeeper under load: `python -m soak.cluster --rounds 100`.

`--first 37` begins with round 37. `--round 7` repeats one round. The folders of a failed round are kept.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from soak.cluster.command import play_rounds, run_rounds
from soak.cluster.faults import Outcome
from soak.cluster.processes import ProcessCluster
from soak.cluster.rounds import Plan, play


def outcomes(numbers: Iterable[int], folder: Path) -> Iterator[Outcome]:
    """Play the rounds with these numbers and yield their outcomes."""
    return play_rounds(numbers, folder, ProcessCluster, lambda cluster, number: play(cluster, Plan.draw(number)))


if __name__ == "__main__":
    sys.exit(run_rounds("soak.cluster", __doc__, outcomes))
