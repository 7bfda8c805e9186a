"""Inject faults into brokers and controllers of a KRaft cluster under load: `python -m soak.kraft --rounds 100`.

The controllers and broker 1 are Apache Kafka, brokers 2 and 3 are Barnabas. `--first 37` begins with round 37.
`--round 7` repeats one round. The folders of a failed round are kept.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from soak.cluster.command import play_rounds, run_rounds
from soak.cluster.faults import Outcome
from soak.kraft.processes import KRaftProcessCluster
from soak.kraft.rounds import Plan, play


def outcomes(numbers: Iterable[int], folder: Path) -> Iterator[Outcome]:
    """Play the rounds with these numbers and yield their outcomes."""
    return play_rounds(numbers, folder, KRaftProcessCluster, lambda cluster, number: play(cluster, Plan.draw(number)))


if __name__ == "__main__":
    sys.exit(run_rounds("soak.kraft", __doc__, outcomes))
