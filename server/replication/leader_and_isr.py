"""Values that the controller and the leaders of partitions exchange, and the port for changes of the ISR (KIP-497)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from ...protocol.schema import ZERO_UUID
from ...protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class LeaderAndIsrState:
    """The leader, replicas, ISR and epochs of a partition in a LeaderAndIsr request (its PartitionState)."""

    topic_partition: TopicPartition
    topic_id: UUID
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    is_new: bool = False
    """Whether the replica may not have a log yet."""
    controller_epoch: int = 0
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0


@dataclass(frozen=True, slots=True)
class IsrChange:
    """A leader's request for a new ISR, which the controller refuses if the partition has changed since."""

    topic_partition: TopicPartition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...] = ()
    """The broker epochs of `isr`, in its order; -1 if unknown, empty from old leaders."""
    leader_recovery_state: int = 0
    topic_id: UUID = ZERO_UUID
    """The topic id; zero in calls of the controller in this process, which does not need it."""


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Kafka's LeaderAndIsr: the committed state of a partition."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    leader_recovery_state: int = 0


class AlterPartitionManager(Protocol):
    """Kafka's AlterPartitionManager: sends AlterPartition to the controller, or writes to the metadata store in older
    clusters."""

    async def submit(self, change: IsrChange) -> LeaderAndIsr:
        """Request a change, and return the committed state; the caller repeats it. Raises KafkaError.

        After INELIGIBLE_REPLICA and OPERATION_NOT_ATTEMPTED the change was certainly not made. After
        FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, INVALID_REQUEST, NEW_LEADER_ELECTED, UNKNOWN_TOPIC_ID and
        UNKNOWN_TOPIC_OR_PARTITION a newer LeaderAndIsr will arrive. After any other error the change may have been made
        or not.
        """
