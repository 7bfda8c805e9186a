"""Kafka's RecordState: the delivery state of records in a share-partition, as persisted by the share coordinator."""

from __future__ import annotations

from enum import IntEnum


class RecordState(IntEnum):
    """The state of in-flight records. Its value is the delivery state in ShareSnapshot and ShareUpdate records."""

    AVAILABLE = 0
    """A member may acquire the records."""
    ACQUIRED = 1
    """A member holds the acquisition lock. This state is not persisted."""
    ACKNOWLEDGED = 2
    """The records are processed."""
    ARCHIVING = 3
    """The records are being written to the dead-letter queue (KIP-1191)."""
    ARCHIVED = 4
    """The records are not delivered any more: rejected, delivered too often, or not present in the log."""

    @property
    def is_terminal(self) -> bool:
        """Whether the records never change their state again."""
        return self is RecordState.ACKNOWLEDGED or self is RecordState.ARCHIVED


class AcknowledgementType(IntEnum):
    """Kafka's AcknowledgeType, and GAP, which a member sends for acquired offsets without a record."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AcquireMode(IntEnum):
    """Kafka's ShareAcquireMode: whether the record limit of a fetch is soft or strict (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    """The limit is exceeded up to the end of a batch, so that the client receives whole batches."""
    RECORD_LIMIT = 1
    """No fetch acquires more records than its limit."""
