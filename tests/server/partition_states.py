"""Orders of a controller, for tests that are about something else."""

from __future__ import annotations

from typing import Any

from barnabas.server.replication.leader_and_isr import LeaderAndIsrState
from barnabas.server.replication.partition import Partition


def next_order(partition: Partition, leader_epoch: int, leader: int = 1, **others: Any) -> LeaderAndIsrState:
    """That a partition be led by `leader` from an epoch on; for the rest all stays as it is, but for `others`."""
    terms: dict[str, Any] = {
        "partition_epoch": partition.partition_epoch,
        "replicas": partition.replicas,
        "isr": partition.in_sync_replicas,
    }
    return LeaderAndIsrState(
        partition.topic_partition, partition.topic_id, leader, leader_epoch=leader_epoch, **(terms | others)
    )
