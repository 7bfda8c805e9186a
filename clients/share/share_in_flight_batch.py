"""Records that one response delivered to this member, and their acknowledgement by the application."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.record import Headers, TimestampType
from ...protocol.topic_partition import TopicIdPartition
from .acknowledgements import Acknowledgements, AcknowledgeType

if TYPE_CHECKING:
    from .share_consume_request_manager import ShareConsumeRequestManager


class ShareRecord:
    """One acquired record. `timestamp` is in ms, -1 if the record's format has none.

    `delivery_count` is 1 at the first delivery of the record to any member of the group.

    `accept`, `release`, `reject` and `renew` acknowledge the record; the result can be awaited, and raises KafkaError
    if the broker rejected it (INVALID_RECORD_STATE after the acquisition lock has expired). Without `await` the
    acknowledgement is sent with the next fetch, or soon after. They raise RuntimeError for a record whose final
    acknowledgement was already sent.
    """

    __slots__ = (
        "_acknowledgements",
        "_batch",
        "_lock_expires_at",
        "delivery_count",
        "headers",
        "key",
        "leader_epoch",
        "offset",
        "partition",
        "timestamp",
        "timestamp_type",
        "topic",
        "value",
    )

    def __init__(
        self,
        batch: ShareInFlightBatch,
        offset: int,
        timestamp: int,
        timestamp_type: TimestampType,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        leader_epoch: int,
        delivery_count: int,
    ) -> None:
        self.topic: str = batch.partition.topic
        self.partition: int = batch.partition.partition
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = headers
        self.leader_epoch = leader_epoch
        self.delivery_count = delivery_count
        self._batch = batch
        self._lock_expires_at = batch.lock_expires_at
        self._acknowledgements: Acknowledgements | None = None

    def __repr__(self) -> str:
        return f"ShareRecord({self.topic}-{self.partition}, offset {self.offset}, delivery {self.delivery_count})"

    def acknowledge(self, kind: AcknowledgeType) -> Acknowledgements:
        """Acknowledge the record with this type."""
        return self._batch.acknowledge(self, kind)

    def accept(self) -> Acknowledgements:
        """Acknowledge that the record was processed."""
        return self.acknowledge(AcknowledgeType.ACCEPT)

    def release(self) -> Acknowledgements:
        """Give the record back; it is delivered again, to any member."""
        return self.acknowledge(AcknowledgeType.RELEASE)

    def reject(self) -> Acknowledgements:
        """Acknowledge that the record cannot be processed; it is not delivered again."""
        return self.acknowledge(AcknowledgeType.REJECT)

    def renew(self) -> Acknowledgements:
        """Start the acquisition lock again, for a record that needs more time. The record has to be acknowledged
        later.
        """
        return self.acknowledge(AcknowledgeType.RENEW)

    @property
    def is_expired(self) -> bool:
        """Return whether the acquisition lock has expired: another member may have the record."""
        return self._batch.is_expired(self)

    @property
    def is_acknowledged(self) -> bool:
        """Return whether the record has an acknowledgement other than a renewal."""
        taken = self._acknowledgements
        return taken is not None and taken.types.get(self.offset) is not AcknowledgeType.RENEW


class ShareInFlightBatch:
    """The records of one partition in one response, used on the event loop of the consumer.

    It contains the records without a final acknowledgement: the share session with the broker is kept open for them.
    """

    __slots__ = ("_manager", "_now", "_open", "lock_expires_at", "node_id", "partition")

    def __init__(
        self,
        manager: ShareConsumeRequestManager,
        node_id: int,
        partition: TopicIdPartition,
        lock_expires_at: float,
        now: Callable[[], float],
    ) -> None:
        self._manager = manager
        self.node_id = node_id
        self.partition = partition
        self.lock_expires_at = lock_expires_at
        """Loop time by which the broker has released the records that were neither acknowledged nor renewed."""
        self._open: dict[int, ShareRecord] = {}
        self._now = now

    @property
    def open_count(self) -> int:
        """Return the number of records that wait for an acknowledgement."""
        return len(self._open)

    def add(self, record: ShareRecord) -> None:
        self._open[record.offset] = record

    def take_expired(self) -> int:
        """Remove the records whose lock has expired; return their number."""
        now = self._now()
        if self.lock_expires_at > now:
            return 0  # a renewal only extends a lock
        expired = [offset for offset, record in self._open.items() if record._lock_expires_at <= now]
        for offset in expired:
            del self._open[offset]
        return len(expired)

    def is_expired(self, record: ShareRecord) -> bool:
        """Return whether another member may have the record: the lock has expired, or there is a new leader."""
        return record._lock_expires_at <= self._now() or self._manager.has_moved(self.node_id, self.partition)

    def expire(self) -> None:
        """Remove all records: the broker has released them."""
        self.lock_expires_at = -inf
        for record in self._open.values():
            record._lock_expires_at = -inf
        self._open.clear()

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType) -> Acknowledgements:
        """Acknowledge a record, to be sent later. Raises RuntimeError if a final acknowledgement was already sent."""
        taken = record._acknowledgements
        if taken is not None and not taken.is_sent:
            taken.add(record.offset, kind)
        elif taken is not None and record.is_acknowledged:
            raise RuntimeError(f"{record!r}: the acknowledgement was already sent")
        elif self.is_expired(record):
            moved = self._manager.has_moved(self.node_id, self.partition)
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if moved else ErrorCode.INVALID_RECORD_STATE
            reason = "the partition has a new leader" if moved else "the acquisition lock has expired"
            message = f"{self.partition.topic_partition} offset {record.offset}: {reason}"
            taken = Acknowledgements.failed(self.partition, KafkaError(code, message))
            taken.add(record.offset, kind)
        elif kind is AcknowledgeType.RENEW and not self._manager.supports_renewals(self.node_id):
            message = f"broker {self.node_id} does not support renewals of acquisition locks (Kafka 4.2)"
            return Acknowledgements.failed(self.partition, KafkaError(ErrorCode.UNSUPPORTED_VERSION, message))
        else:
            taken = self._manager.pending(self.node_id, self.partition)
            taken.add(record.offset, kind)
        record._acknowledgements = taken
        if kind is AcknowledgeType.RENEW:
            self._open[record.offset] = record
        else:
            self._open.pop(record.offset, None)
        return taken

    def renewed(self, acknowledgements: Acknowledgements, lock_expires_at: float) -> None:
        """Apply renewals that the broker has granted."""
        for offset, kind in acknowledgements.types.items():
            record = self._open.get(offset)
            if kind is AcknowledgeType.RENEW and record is not None:
                record._lock_expires_at = lock_expires_at
