"""Recently rejected batches of one connection, for later batches that were in flight at that time.

A producer has five requests in flight. The first may arrive while its partition has too few in-sync replicas, while
the disk is full, or just before the broker becomes its leader, and the second after that: then a sequence number is
missing, although no record is lost, and all are sent again in order. librdkafka does so after NOT_ENOUGH_REPLICAS.

After OUT_OF_ORDER_SEQUENCE_NUMBER it starts a new epoch for all partitions, in which the sequence numbers of its queued
records begin at 0. Records that are already in the logs of other partitions may be queued to be sent again, because the
response was NOT_LEADER_OR_FOLLOWER or did not arrive. A broker does not recognize them in the new epoch, and they are
written twice. So batches after a rejected batch receive the same error.

Kafka's brokers return OUT_OF_ORDER_SEQUENCE_NUMBER, after which librdkafka can write records twice. Java's producer
never does: it uses the new epoch for a partition only after all records sent to that partition are acknowledged.
"""

from __future__ import annotations

from collections.abc import Container

from .batch_header import HEADER_SIZE, BatchHeader
from .errors import ErrorCode, KafkaError
from .produce_entries import EntryKey
from .record import MAGIC_POSITION

FOLLOWING_REQUESTS = 4
"""Requests that may be in flight after the first: idempotent producers have five in flight."""
MAX_PARTITIONS = 1000
"""Maximum entries per connection."""
LONGEST_NAME = 249
"""Maximum topic name; a longer topic cannot exist."""
_FOR_NOW = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        # A full disk may have room for a smaller batch, or after a deletion.
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class SequenceGapGuard:
    """The rejected batches of one connection, on the event loop.

    Later batches receive the same error `FOLLOWING_REQUESTS` times, and then their own result.
    """

    def __init__(self) -> None:
        self._refused: dict[EntryKey, tuple[KafkaError, int]] = {}

    def __len__(self) -> int:
        return len(self._refused)

    def __contains__(self, key: EntryKey) -> bool:
        """Return whether a batch for this partition was rejected, and later batches may get its error."""
        return key in self._refused

    def gap(self, key: EntryKey, records: memoryview, known: Container[int]) -> KafkaError | None:
        """Return the error for records of an unknown producer that are not its first, if they follow a rejected batch.

        Otherwise they would be accepted, since the state before may have expired; and when the rejected batch is sent
        again, it is out of order permanently. librdkafka then counts it as written.
        """
        if key not in self._refused or len(records) < HEADER_SIZE or records[MAGIC_POSITION] != 2:
            return None
        header = BatchHeader.read(records)
        if header.base_sequence <= 0 or header.producer_id in known:
            return None
        return KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "an earlier batch of the producer was rejected")

    def record_result(self, key: EntryKey, error: KafkaError | None) -> KafkaError | None:
        """Return the error for one partition, from the result of its records."""
        if error is None:
            self._refused.pop(key, None)
        elif error.code in _FOR_NOW and len(key[0]) <= LONGEST_NAME:
            self._remember(key, error, FOLLOWING_REQUESTS)
        elif error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and key in self._refused:
            first, left = self._refused.pop(key)
            if left > 1:
                self._remember(key, first, left - 1)
            return first
        return error

    def _remember(self, key: EntryKey, error: KafkaError, behind: int) -> None:
        self._refused.pop(key, None)
        self._refused[key] = error, behind
        if len(self._refused) > MAX_PARTITIONS:
            del self._refused[next(iter(self._refused))]
