"""In-sync replicas are changed by asking: what a leader proposes, and the port to whoever decides (KIP-497)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from ...protocol.schema import ZERO_UUID
from ...protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class IsrChange:
    """What a leader wants to be true of its partition, which counts only if nothing has changed since."""

    topic_partition: TopicPartition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...] = ()
    """Of the brokers in `isr`, in their order, as their fetches told; -1 where nobody knows, none from old leaders."""
    leader_recovery_state: int = 0
    topic_id: UUID = ZERO_UUID
    """Not needed where it is decided."""


@dataclass(frozen=True, slots=True)
class PartitionStateNow:
    """What is true of a partition, as who decides it has written it down."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    leader_recovery_state: int = 0


class IsrChanges(Protocol):
    """The controller (AlterPartition), or the metadata store that leaders of older clusters write into themselves."""

    async def propose(self, change: IsrChange) -> PartitionStateNow:
        """Have the change made, which is repeated by whoever asks. Raises KafkaError.

        INELIGIBLE_REPLICA and OPERATION_NOT_ATTEMPTED say that nothing was changed for certain; FENCED_LEADER_EPOCH,
        INVALID_UPDATE_VERSION, INVALID_REQUEST, NEW_LEADER_ELECTED, UNKNOWN_TOPIC_ID and UNKNOWN_TOPIC_OR_PARTITION
        that other orders are on their way; after any other error it may have been made or not.
        """
