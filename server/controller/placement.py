"""Which brokers the replicas of a topic's partitions are given to: Kafka's `AdminUtils.assignReplicasToBrokers`."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TypeAlias

Racks: TypeAlias = Mapping[int, str | None]
"""The live brokers, each with its rack."""


def assign_replicas(
    brokers: Racks,
    partitions: range,
    replication_factor: int,
    chance: random.Random,
    first_replica_of_partition_0: int | None = None,
) -> dict[int, tuple[int, ...]]:
    """Spreads replicas evenly: first replicas go round robin from a random broker, the others follow at a shift.

    The shift grows with each round, so that the partitions of one leader have their followers on different brokers.
    Where every broker has a rack, a partition's replicas are in as many racks as there can be (KIP-36).
    `first_replica_of_partition_0` keeps the round robin of a topic that gets more partitions.
    Needs 1 <= replication_factor <= len(brokers).
    """
    count = len(brokers)
    assert 1 <= replication_factor <= count
    racks = {broker: rack for broker, rack in brokers.items() if rack is not None}
    by_rack = len(racks) == count
    order = alternating_racks(racks) if by_rack else list(brokers)
    if first_replica_of_partition_0 is not None and first_replica_of_partition_0 in brokers:
        start = shift = order.index(first_replica_of_partition_0)
    else:
        start, shift = chance.randrange(count), chance.randrange(count)
    assignment = {}
    for partition in partitions:
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start) % count
        if by_rack:
            assignment[partition] = _in_many_racks(order, racks, first, shift, replication_factor)
        else:
            others = [(first + 1 + (shift + place) % (count - 1)) % count for place in range(replication_factor - 1)]
            assignment[partition] = tuple(order[index] for index in (first, *others))
    return assignment


def alternating_racks(racks: Mapping[int, str]) -> list[int]:
    """The brokers so that neighbours stand in different racks, as far as that can be: one of each rack in turn."""
    by_rack: dict[str, list[int]] = {}
    for broker, rack in sorted(racks.items(), key=lambda item: (item[1], item[0])):
        by_rack.setdefault(rack, []).append(broker)
    return [broker for one_each in zip_longest(*by_rack.values()) for broker in one_each if broker is not None]


def _in_many_racks(
    order: Sequence[int], racks: Mapping[int, str], first: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    """One partition's replicas: none in a rack that has one while another rack has none, none on a broker twice."""
    count, rack_count = len(order), len(set(racks.values()))
    chosen = [order[first]]
    step = 0
    while len(chosen) < replication_factor:
        used_racks = {racks[broker] for broker in chosen}
        while True:
            broker = order[_replica_index(first, shift * rack_count, step, count)]
            step += 1
            in_new_rack = racks[broker] not in used_racks or len(used_racks) == rack_count
            if in_new_rack and (broker not in chosen):
                break
        chosen.append(broker)
    return tuple(chosen)


def _replica_index(first: int, shift: int, step: int, count: int) -> int:
    """Kafka's replicaIndex: the place of a follower, never that of the first replica."""
    return (first + 1 + (shift + step) % (count - 1)) % count
