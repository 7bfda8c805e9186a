"""What the controller orders for one partition, the same from the wire or the controller's memory to the partition."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from ...protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionOrder:
    """Who leads a partition, with whom, in which epoch (LeaderAndIsrPartitionState)."""

    topic_partition: TopicPartition
    topic_id: UUID
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    is_new: bool = False
    """Whether there may be no log of it yet."""
    controller_epoch: int = 0
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
