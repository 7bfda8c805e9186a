"""The state of a partition in a KRaft cluster."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from ...protocol.metadata_records import PartitionChangeRecord, PartitionRecord
from .metadata_error import MetadataError

NO_LEADER = -1
NO_LEADER_CHANGE = -2
NO_RECOVERY_STATE_CHANGE = -1
MIGRATING_DIRECTORY = UUID(int=0)
"""Kafka's DirectoryId.MIGRATING: the log directory of a replica before metadata.version 3.7-IV2."""


class PartitionRegistration(NamedTuple):
    """The state of a partition (Kafka's PartitionRegistration).

    `directories` has the id of each replica's log directory, in the order of `replicas`. `elr` has the replicas outside
    of the ISR that have all committed records (KIP-966).
    """

    replicas: tuple[int, ...]
    directories: tuple[UUID, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    leader: int
    leader_recovery_state: int
    """0: recovered. 1: recovering after an unclean election."""
    leader_epoch: int
    partition_epoch: int
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @classmethod
    def from_record(cls, record: PartitionRecord) -> PartitionRegistration:
        """Return the state in a record. Raises MetadataError."""
        replicas = tuple(record.replicas)
        return cls(
            replicas,
            _directories(tuple(record.directories), replicas),
            tuple(record.isr),
            tuple(record.removing_replicas),
            tuple(record.adding_replicas),
            record.leader,
            record.leader_recovery_state,
            record.leader_epoch,
            record.partition_epoch,
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
        )

    def merge(self, record: PartitionChangeRecord) -> PartitionRegistration:
        """Return the state after a change. Raises MetadataError."""
        replicas = self.replicas if record.replicas is None else tuple(record.replicas)
        directories = self.directories if record.directories is None else tuple(record.directories)
        is_elected = record.leader != NO_LEADER_CHANGE
        recovery_state = record.leader_recovery_state
        return PartitionRegistration(
            replicas,
            _directories(directories, replicas),
            self.isr if record.isr is None else tuple(record.isr),
            self.removing_replicas if record.removing_replicas is None else tuple(record.removing_replicas),
            self.adding_replicas if record.adding_replicas is None else tuple(record.adding_replicas),
            record.leader if is_elected else self.leader,
            self.leader_recovery_state if recovery_state == NO_RECOVERY_STATE_CHANGE else recovery_state,
            self.leader_epoch + is_elected,
            self.partition_epoch + 1,
            self.elr if record.eligible_leader_replicas is None else tuple(record.eligible_leader_replicas),
            self.last_known_elr if record.last_known_elr is None else tuple(record.last_known_elr),
        )

    def to_record(self, topic_id: UUID, partition_id: int, version: int) -> PartitionRecord:
        """Return the state as a record of a version, without the values that the version cannot carry."""
        return PartitionRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing_replicas),
            adding_replicas=list(self.adding_replicas),
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=list(self.directories) if version >= 1 else [],
            eligible_leader_replicas=(list(self.elr) or None) if version >= 2 else None,
            last_known_elr=(list(self.last_known_elr) or None) if version >= 2 else None,
        )

    def directory(self, broker_id: int) -> UUID | None:
        """Return the id of the log directory of a broker's replica; None if the broker has no replica."""
        return self.directories[self.replicas.index(broker_id)] if broker_id in self.replicas else None


def _directories(directories: tuple[UUID, ...], replicas: tuple[int, ...]) -> tuple[UUID, ...]:
    if not directories:
        return (MIGRATING_DIRECTORY,) * len(replicas)
    if len(directories) != len(replicas):
        raise MetadataError(f"a partition has {len(replicas)} replicas but {len(directories)} log directories")
    return directories
