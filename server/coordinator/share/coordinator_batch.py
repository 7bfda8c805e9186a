"""Records of several operations that are appended as one batch (Kafka: CoordinatorRuntime's CoordinatorBatch)."""

from __future__ import annotations

import asyncio

from ....protocol.errors import ErrorCode
from ..coordinator_log import CoordinatorRecord, ResponseCallback
from .share_coordinator_record_helpers import ShareStateRecord
from .share_coordinator_shard import ShareCoordinatorShard, SharePartitionEntry
from .share_partition_key import SharePartitionKey


class CoordinatorBatch:
    """The records of operations on one shard, which are applied to the shard before they are appended.

    If the append fails, `revert` restores the share-partitions of the batch. No later batch can depend on its state,
    because a shard has at most one batch that is not appended.
    """

    __slots__ = ("_former", "_replies", "_shard", "encoded", "flush_handle", "is_overdue", "size")

    def __init__(self, shard: ShareCoordinatorShard) -> None:
        self._shard = shard
        self.encoded: list[CoordinatorRecord] = []
        """The keys and values of all records."""
        self.size = 0
        """An upper bound of the size of the encoded records in bytes."""
        self._replies: list[ResponseCallback] = []
        self._former: dict[SharePartitionKey, SharePartitionEntry | None] = {}
        self.flush_handle: asyncio.Handle | None = None
        """The scheduled append; None after it has begun."""
        self.is_overdue = False
        """Whether the append had no outcome within the write timeout."""

    def add(
        self, records: list[ShareStateRecord], encoded: list[CoordinatorRecord], offset: int, reply: ResponseCallback
    ) -> None:
        """Apply the records of one operation, which will be in the log from `offset` on; `reply` gets the outcome."""
        for record in records:
            self._former.setdefault(record.key, self._shard.entries.get(record.key))
            self._shard.replay(record, offset)
            self.size += record.size_limit
        self.encoded += encoded
        self._replies.append(reply)

    def add_reply(self, reply: ResponseCallback) -> None:
        """Call `reply` with the outcome of the append, for an operation that has read the state of the batch."""
        self._replies.append(reply)

    def revert(self) -> None:
        """Restore the state before the batch."""
        for key, entry in self._former.items():
            if entry is None:
                self._shard.entries.pop(key, None)
            else:
                self._shard.entries[key] = entry

    def complete(self, outcome: ErrorCode) -> None:
        """Call the reply functions with the outcome; later calls have no effect."""
        replies, self._replies = self._replies, []
        for reply in replies:
            reply(outcome)
