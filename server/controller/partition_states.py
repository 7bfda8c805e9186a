"""The states of a partition and the legal ways between them (Kafka's `PartitionStateMachine`)."""

from __future__ import annotations

from enum import Enum


class PartitionPhase(Enum):
    """Where a partition stands, as the controller sees it."""

    NON_EXISTENT = "NonExistentPartition"
    """Never created, or deleted."""
    NEW = "NewPartition"
    """Has replicas but never had a leader."""
    ONLINE = "OnlinePartition"
    """Has a leader."""
    OFFLINE = "OfflinePartition"
    """Had a leader that is gone."""


TRANSITIONS: dict[PartitionPhase, frozenset[PartitionPhase]] = {
    PartitionPhase.NON_EXISTENT: frozenset({PartitionPhase.NEW}),
    PartitionPhase.NEW: frozenset({PartitionPhase.ONLINE, PartitionPhase.OFFLINE}),
    PartitionPhase.ONLINE: frozenset({PartitionPhase.ONLINE, PartitionPhase.OFFLINE}),
    PartitionPhase.OFFLINE: frozenset({PartitionPhase.ONLINE, PartitionPhase.OFFLINE, PartitionPhase.NON_EXISTENT}),
}
"""From each state, those that may follow. ONLINE to ONLINE is a new election while the leader lives."""


def transition(current: PartitionPhase, target: PartitionPhase) -> PartitionPhase:
    """Returns `target`. Raises AssertionError for a way that the table does not know."""
    assert target in TRANSITIONS[current], f"a partition cannot go from {current.value} to {target.value}"
    return target
