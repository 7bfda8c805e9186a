"""The states of a transactional id, and which may follow which (Kafka's TransactionState)."""

from __future__ import annotations

from enum import IntEnum


class TransactionState(IntEnum):
    """The number is what stands in the log."""

    EMPTY = 0
    """No transaction has begun yet with this producer id and epoch."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """It is decided and durable; markers are on their way."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """All markers are written."""
    COMPLETE_ABORT = 5
    DEAD = 6
    """Being forgotten, as it has not been used for long."""
    PREPARE_EPOCH_FENCE = 7
    """In Kafka a moment on the way from ONGOING to PREPARE_ABORT, never in the log. Here only a name to filter by."""

    @property
    def label(self) -> str:
        """What clients are told."""
        return LABELS[self]


_S = TransactionState

LABELS = {
    _S.EMPTY: "Empty",
    _S.ONGOING: "Ongoing",
    _S.PREPARE_COMMIT: "PrepareCommit",
    _S.PREPARE_ABORT: "PrepareAbort",
    _S.COMPLETE_COMMIT: "CompleteCommit",
    _S.COMPLETE_ABORT: "CompleteAbort",
    _S.DEAD: "Dead",
    _S.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}

AT_REST = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""No transaction is open: one may begin, and the id may be forgotten in time."""

ENDING = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})

TRANSITIONS: dict[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
    _S.ONGOING: frozenset({_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.COMPLETE_COMMIT}),
    _S.PREPARE_ABORT: frozenset({_S.COMPLETE_ABORT}),
    _S.COMPLETE_COMMIT: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
    _S.COMPLETE_ABORT: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
    _S.DEAD: frozenset(),
    _S.PREPARE_EPOCH_FENCE: frozenset(),
}
"""Where each state leads. To PREPARE_ABORT without a transaction only with version 2 of the protocol (KIP-890)."""

COMPLETED = {_S.PREPARE_COMMIT: _S.COMPLETE_COMMIT, _S.PREPARE_ABORT: _S.COMPLETE_ABORT}
"""What follows once all markers are written."""
