"""What one connection's batches were refused for a moment ago, for those that were on their way behind them.

A producer has five requests on their way. The first may come while its partition has too few replicas in sync, or just
before it is led or even known here, and the second when all is well again: then a sequence number is missing, but
nobody has lost anything, and all are sent again in their order. librdkafka does so after NOT_ENOUGH_REPLICAS; after
OUT_OF_ORDER_SEQUENCE_NUMBER it begins a new epoch, for all partitions, and what it has on its way elsewhere and is
written there is written twice. So who comes behind a batch that was refused hears the same. Beyond Kafka.
"""

from __future__ import annotations

from collections.abc import Container

from .batch_header import HEADER_SIZE, BatchHeader
from .errors import ErrorCode, KafkaError
from .produce_entries import Place
from .record import MAGIC_POSITION

BEHIND = 4
"""Requests that may be on their way behind the first: idempotent producers have five in flight."""
MOST_PLACES = 1000
"""Remembered of one connection."""
LONGEST_NAME = 249
"""Of a topic; with a longer one none will ever be there."""
_FOR_NOW = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


class RefusedBefore:
    """One connection's. What is behind hears it `BEHIND` times, and then what it came to itself. Loop-thread only."""

    def __init__(self) -> None:
        self._refused: dict[Place, tuple[KafkaError, int]] = {}

    def __len__(self) -> int:
        return len(self._refused)

    def gap(self, place: Place, records: memoryview, known: Container[int]) -> KafkaError | None:
        """What is wrong with records of a producer that is not among the `known`, as they are not its first.

        Else they would be taken, since what was before may be so old that it is gone; and when the first that was
        refused comes again, it is out of order for ever. librdkafka counts it as written then.
        """
        if place not in self._refused or len(records) < HEADER_SIZE or records[MAGIC_POSITION] != 2:
            return None
        header = BatchHeader.read(records)
        if header.base_sequence <= 0 or header.producer_id in known:
            return None
        return KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "what the producer sent before this was refused")

    def heard(self, place: Place, error: KafkaError | None) -> KafkaError | None:
        """What the producer is to hear of one partition, whose records came to this."""
        if error is None:
            self._refused.pop(place, None)
        elif error.code in _FOR_NOW and len(place[0]) <= LONGEST_NAME:
            self._remember(place, error, BEHIND)
        elif error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and place in self._refused:
            first, left = self._refused.pop(place)
            if left > 1:
                self._remember(place, first, left - 1)
            return first
        return error

    def _remember(self, place: Place, error: KafkaError, behind: int) -> None:
        self._refused.pop(place, None)
        self._refused[place] = error, behind
        if len(self._refused) > MOST_PLACES:
            del self._refused[next(iter(self._refused))]
