"""Committed offsets of one group (Kafka: OffsetAndMetadata, OffsetMetadataManager.Offsets) and their expiration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from ....protocol.schema import ZERO_UUID
from ....protocol.topic_partition import TopicPartitionKey

NO_OFFSET = -1
NO_LEADER_EPOCH = -1


class CommittedOffset(NamedTuple):
    """The committed offset of a partition: the offset of the next record to read (Kafka: OffsetAndMetadata)."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    """The time of expiration that the client chose (OffsetCommit 2 to 4); -1 for the broker's retention."""
    topic_id: UUID = ZERO_UUID


class OffsetExpirationCondition(NamedTuple):
    """The rule for the expiration of a group's offsets (KIP-211, KIP-496)."""

    since_ms: int | None = None
    """The time at which the group lost its last member; None if the retention begins with each commit."""
    keep: frozenset[str] = frozenset()
    """The topics whose offsets do not expire."""


class PendingOffset(NamedTuple):
    """An offset that was committed in an open transaction."""

    order: int
    """Its position in the log, relative to other pending offsets of the group."""
    offset: CommittedOffset


@dataclass(slots=True)
class GroupOffsets:
    """The committed offsets of a group by partition.

    An offset that was committed in a transaction counts from the commit of the transaction, unless another offset for
    its partition was written later. `__bool__` includes offsets that are not durable yet: the group must not be deleted
    during their append.
    """

    committed: dict[TopicPartitionKey, CommittedOffset] = field(default_factory=dict)
    in_flight: Counter[TopicPartitionKey] = field(default_factory=Counter)
    """The number of appends in flight by partition."""
    pending: dict[int, dict[TopicPartitionKey, PendingOffset]] = field(default_factory=dict)
    """The offsets in open transactions by producer id."""
    _producers: dict[TopicPartitionKey, set[int]] = field(default_factory=dict)
    """The producer ids in `pending` by partition: a group may have thousands of open transactions."""
    _pending_in_flight: Counter[TopicPartitionKey] = field(default_factory=Counter)
    """The part of `in_flight` that belongs to transactions."""
    _order: int = 0

    def __bool__(self) -> bool:
        return bool(self.committed) or bool(self.in_flight) or bool(self.pending)

    def commit(self, offsets: Mapping[TopicPartitionKey, CommittedOffset]) -> None:
        """Set offsets, and drop the pending offsets of their partitions: those were written earlier."""
        self.committed.update(offsets)
        self._drop_all_pending(offsets)

    def remove(self, partitions: Iterable[TopicPartitionKey]) -> None:
        """Remove the offsets and the pending offsets of partitions."""
        removed = list(partitions)
        for partition in removed:
            self.committed.pop(partition, None)
        self._drop_all_pending(removed)

    def _drop_all_pending(self, partitions: Iterable[TopicPartitionKey]) -> None:
        if self.pending:
            for partition in partitions:
                self._drop_pending(partition, self._order)

    def _drop_pending(self, partition: TopicPartitionKey, up_to: int) -> None:
        for producer_id in list(self._producers.get(partition, ())):
            pending = self.pending[producer_id]
            if pending[partition].order <= up_to:
                del pending[partition]
                self._remove_producer(partition, producer_id)
                if not pending:
                    del self.pending[producer_id]

    def _remove_producer(self, partition: TopicPartitionKey, producer_id: int) -> None:
        producers = self._producers[partition]
        producers.remove(producer_id)
        if not producers:
            del self._producers[partition]

    def begin_pending(self, partitions: Iterable[TopicPartitionKey]) -> None:
        """Count an append in a transaction as in flight."""
        appended = list(partitions)
        self.begin(appended)
        self._pending_in_flight.update(appended)

    def finish_pending(self, partitions: Iterable[TopicPartitionKey]) -> None:
        """End an append in a transaction, successful or not."""
        appended = list(partitions)
        self.finish(appended)
        self._pending_in_flight -= Counter(appended)

    def add_pending(self, producer_id: int, offsets: Mapping[TopicPartitionKey, CommittedOffset]) -> None:
        """Add offsets of a producer's open transaction."""
        self._order += 1
        pending = self.pending.setdefault(producer_id, {})
        for partition, offset in offsets.items():
            pending[partition] = PendingOffset(self._order, offset)
            self._producers.setdefault(partition, set()).add(producer_id)

    def complete_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Apply or drop the pending offsets of a producer's transaction."""
        for partition, (order, offset) in self.pending.pop(producer_id, {}).items():
            self._remove_producer(partition, producer_id)
            if is_commit:
                self.committed[partition] = offset
                self._drop_pending(partition, order)

    def has_pending(self, topic: str, partition: int) -> bool:
        """Return whether an open transaction may change the offset of a partition (KIP-447)."""
        topic_partition = topic, partition
        return topic_partition in self._pending_in_flight or topic_partition in self._producers

    def begin(self, partitions: Iterable[TopicPartitionKey]) -> None:
        """Count an append of these partitions' offsets as in flight."""
        self.in_flight.update(iter(partitions))

    def finish(self, partitions: Iterable[TopicPartitionKey]) -> None:
        """End an append of these partitions' offsets, successful or not."""
        for partition in partitions:
            self.in_flight[partition] -= 1
            assert self.in_flight[partition] >= 0, f"an append of the offset of {partition} ended twice"
            if not self.in_flight[partition]:
                del self.in_flight[partition]

    @property
    def partitions(self) -> set[TopicPartitionKey]:
        """The partitions that have a record in the log, or one in flight."""
        return self.committed.keys() | self.in_flight.keys() | self._producers.keys()

    def partitions_of(self, topics: Container[str]) -> set[TopicPartitionKey]:
        """Return the partitions of these topics in `partitions`."""
        return {
            partition
            for known in (self.committed, self.in_flight, self._producers)
            for partition in known
            if partition[0] in topics
        }

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        return self.committed.get((topic, partition))

    def expired(
        self, now_ms: int, retention_ms: int, condition: OffsetExpirationCondition
    ) -> Iterator[TopicPartitionKey]:
        """Yield the partitions whose offset has expired; a time that the client chose precedes the retention."""
        since_ms, keep = condition
        for partition, offset in self.committed.items():
            if partition[0] in keep or partition in self.in_flight or (self.pending and self.has_pending(*partition)):
                continue
            if offset.expire_timestamp_ms >= 0:
                is_over = now_ms >= offset.expire_timestamp_ms
            else:
                since = offset.commit_timestamp_ms if since_ms is None else since_ms
                is_over = now_ms - since >= retention_ms
            if is_over:
                yield partition
