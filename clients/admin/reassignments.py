"""Elections of leaders (KIP-183, KIP-460) and reassignments of replicas (KIP-455)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ...protocol.topic_partition import TopicPartition


class ElectionType(IntEnum):
    """Kinds of elections, as in Kafka's ElectionType."""

    PREFERRED = 0
    UNCLEAN = 1


class PartitionReassignment(NamedTuple):
    """A reassignment in progress."""

    replicas: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]


def spread_replicas(
    partitions: Mapping[TopicPartition, int], brokers: Sequence[int], racks: Mapping[int, str | None]
) -> dict[TopicPartition, list[int]]:
    """Assign replicas to brokers, given the replication factor of each partition.

    The first replicas, the preferred leaders, are spread evenly, and then the other replicas, so that the replicas of a
    partition are on different brokers, and on different racks as long as there are some. Raises ValueError if there are
    too few brokers.
    """
    if not brokers:
        raise ValueError("no brokers given")
    leads, holds = dict.fromkeys(brokers, 0), dict.fromkeys(brokers, 0)
    assigned: dict[TopicPartition, list[int]] = {}
    for topic_partition, factor in sorted(partitions.items()):
        if factor > len(leads):
            raise ValueError(
                f"{topic_partition.topic}-{topic_partition.partition}: {factor} replicas need more brokers"
            )
        replicas: list[int] = []
        for position in range(factor):
            used = {racks.get(broker) for broker in replicas} - {None}
            free = [broker for broker in leads if broker not in replicas]
            elsewhere = [broker for broker in free if racks.get(broker) not in used] or free
            counts = leads if position == 0 else holds
            _, _, broker = min((counts[broker], holds[broker], broker) for broker in elsewhere)
            replicas.append(broker)
            holds[broker] += 1
        leads[replicas[0]] += 1
        assigned[topic_partition] = replicas
    return assigned
