"""Which brokers get the replicas of a new partition (Kafka's `AdminUtils.assignReplicasToBrokers`)."""

from __future__ import annotations

import random
from collections.abc import Sequence


def assign_replicas(
    brokers: Sequence[int],
    partitions: range,
    replication_factor: int,
    chance: random.Random,
    first_replica_of_partition_0: int | None = None,
) -> dict[int, tuple[int, ...]]:
    """Spreads replicas evenly: first replicas go round robin from a random broker, the others follow at a shift.

    The shift grows with each round, so that the partitions of one leader have their followers on different brokers.
    `first_replica_of_partition_0` keeps the round robin of a topic that gets more partitions.
    Needs 1 <= replication_factor <= len(brokers).
    """
    count = len(brokers)
    assert 1 <= replication_factor <= count
    if first_replica_of_partition_0 in brokers:
        start = shift = brokers.index(first_replica_of_partition_0)
    else:
        start, shift = chance.randrange(count), chance.randrange(count)
    assignment = {}
    for partition in partitions:
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start) % count
        others = [(first + 1 + (shift + place) % (count - 1)) % count for place in range(replication_factor - 1)]
        assignment[partition] = tuple(brokers[index] for index in (first, *others))
    return assignment
