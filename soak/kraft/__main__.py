"""`python -m soak.kraft --rounds 100`: faults of brokers and controllers of a KRaft cluster under load.

The controllers are Apache Kafka's; broker 1 is Apache Kafka's, 2 and 3 are Barnabas. `--first 37` continues where a run
ended, `--round 7` repeats one round. The folders of a round that failed are kept.
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
    """Play the rounds of these numbers."""
    return play_rounds(numbers, folder, KRaftProcessCluster, lambda cluster, number: play(cluster, Plan.draw(number)))


if __name__ == "__main__":
    sys.exit(run_rounds("soak.kraft", __doc__, outcomes))
