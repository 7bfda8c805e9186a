"""The delivery state of one share-partition (Kafka: ShareGroupOffset)."""

from __future__ import annotations

from typing import NamedTuple

from .persister_state_batch_combiner import PersisterStateBatch

NO_TIMESTAMP = 0
UNINITIALIZED_EPOCH = 0
UNINITIALIZED_START_OFFSET = -1
UNINITIALIZED_DELIVERY_COMPLETE_COUNT = -1


class ShareGroupOffset(NamedTuple):
    """The state of a share-partition in a snapshot record, or a change of the state in an update record."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    """The share-partition start offset (SPSO); -1 before the first fetch."""
    delivery_complete_count: int
    """Records from the start offset on whose delivery has ended; -1 if the leader does not report it."""
    state_batches: list[PersisterStateBatch]
    """Sorted, without overlaps. The list is shared: an update replaces it."""
    create_timestamp: int = NO_TIMESTAMP
    write_timestamp: int = NO_TIMESTAMP
    """Later than `create_timestamp` if the snapshot is a copy of an older snapshot."""
