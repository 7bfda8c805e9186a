"""The states of a replica and the legal ways between them (Kafka's `ReplicaStateMachine`).

A replica that nobody deletes is online or offline as its broker and log directory are; what is remembered is how far
the deletion of one has come.
"""

from __future__ import annotations

from enum import Enum


class ReplicaPhase(Enum):
    """Where a replica stands, as the controller sees it."""

    NON_EXISTENT = "NonExistentReplica"
    """Never created, or deleted with all others of its partition."""
    NEW = "NewReplica"
    """Its broker has been told to make it."""
    ONLINE = "OnlineReplica"
    """Its broker is alive and can serve it."""
    OFFLINE = "OfflineReplica"
    """Its broker is gone, or its log directory, or it was told to stop."""
    DELETION_STARTED = "ReplicaDeletionStarted"
    """Its broker has been told to delete it."""
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    """Its broker has deleted it; others of the topic may be left."""
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    """It cannot be deleted now: the deletion goes on when its broker is back."""


_P = ReplicaPhase
REPLICA_TRANSITIONS: dict[ReplicaPhase, frozenset[ReplicaPhase]] = {
    _P.NON_EXISTENT: frozenset({_P.NEW}),
    _P.NEW: frozenset({_P.ONLINE, _P.OFFLINE}),
    _P.ONLINE: frozenset({_P.ONLINE, _P.OFFLINE, _P.DELETION_STARTED}),
    _P.OFFLINE: frozenset({_P.ONLINE, _P.OFFLINE, _P.DELETION_STARTED, _P.DELETION_INELIGIBLE}),
    _P.DELETION_STARTED: frozenset({_P.DELETION_SUCCESSFUL, _P.DELETION_INELIGIBLE}),
    _P.DELETION_SUCCESSFUL: frozenset({_P.NON_EXISTENT}),
    _P.DELETION_INELIGIBLE: frozenset({_P.OFFLINE, _P.DELETION_STARTED}),
}
"""From each state, those that may follow. Kafka goes to DELETION_STARTED by way of OFFLINE: there a replica is told to
stop before it is told to delete, here both are one order."""


def replica_transition(current: ReplicaPhase, target: ReplicaPhase) -> ReplicaPhase:
    """Returns `target`. Raises AssertionError for a way that the table does not know."""
    assert target in REPLICA_TRANSITIONS[current], f"a replica cannot go from {current.value} to {target.value}"
    return target
