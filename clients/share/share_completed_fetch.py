"""The acquired records of one partition in one ShareFetch response, decoded batch by batch as the application reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from ...protocol.errors import ErrorCode, KafkaError, ProtocolError
from ...protocol.record_batch import Batch, iter_batches
from .acknowledgements import GAP, Acknowledgements, AcknowledgeType
from .share_in_flight_batch import ShareInFlightBatch, ShareRecord


class AcquiredRange(Protocol):
    """Offsets that the broker has acquired for this member."""

    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def delivery_count(self) -> int: ...


class _Acquired(NamedTuple):
    first: int
    last: int
    delivery_count: int


_END = 1 << 63
"""Greater than every offset."""
_NONE = _Acquired(_END, _END, 0)


class ShareCompletedFetch:
    """The acquired records of one partition in one response; acknowledges acquired offsets without a record.

    A response contains whole batches; only acquired offsets are delivered. Acquired offsets without a record, such as
    control records and compacted ones, are acknowledged as gaps. A corrupt batch is rejected, and a batch that this
    client cannot decompress is released; both raise KafkaError once.
    """

    def __init__(
        self,
        batch: ShareInFlightBatch,
        records: memoryview,
        acquired: Sequence[AcquiredRange],
        *,
        check_crcs: bool = True,
    ) -> None:
        self.in_flight = batch
        self._batches = iter_batches(records)
        self._later = _ordered(acquired)[::-1]
        self._current = _NONE
        """Acquired offsets that are neither delivered nor acknowledged; `_later` has the following ranges."""
        self._advance()
        self._check_crcs = check_crcs
        self._decoded: Iterator[ShareRecord] = iter(())
        self._error: KafkaError | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether no acquired offset is left."""
        return self._current is _NONE

    @property
    def has_error(self) -> bool:
        """Return whether the next `take` raises an error."""
        return self._error is not None

    def take(self, max_records: int, acknowledgements: Acknowledgements) -> list[ShareRecord]:
        """Return up to this number of records; fewer only at the end, or before an error, which the next call raises.

        `acknowledgements` receives gaps and rejected offsets.
        """
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        taken: list[ShareRecord] = []
        while len(taken) < max_records:
            for record in self._decoded:
                taken.append(record)
                if len(taken) == max_records:
                    return taken
            try:
                if not self._next_batch(acknowledgements):
                    break
            except KafkaError as error:
                if not taken:
                    raise
                self._error = error
                break
        return taken

    def _next_batch(self, acknowledgements: Acknowledgements) -> bool:
        """Decode the next batch with acquired records; return False at the end."""
        while not self.is_empty:
            try:
                batch = next(self._batches, None)
            except ProtocolError as error:
                # The rest of the response cannot be parsed: the start of the next batch is unknown.
                self._batches = iter(())
                self._acknowledge_below(_END, AcknowledgeType.RELEASE, acknowledgements)
                raise self._corrupt(str(error)) from error
            if batch is None:
                # Offsets after the last batch were not transferred, for example because the response was cut off.
                self._acknowledge_below(_END, AcknowledgeType.RELEASE, acknowledgements)
                return False
            if batch.last_offset >= self._current.first:
                records = self._read(batch, acknowledgements)
                if records:
                    self._decoded = iter(records)
                    return True
        return False

    def _read(self, batch: Batch, acknowledgements: Acknowledgements) -> list[ShareRecord]:
        """Return the acquired records of a batch. The whole batch is decoded before a record is delivered."""
        try:
            if self._check_crcs and not batch.is_valid:
                raise ProtocolError("the CRC does not match")
            found = [] if batch.is_control else list(batch.records())
        except (KafkaError, ProtocolError) as error:
            is_corrupt = isinstance(error, ProtocolError) or error.code is ErrorCode.CORRUPT_MESSAGE
            kind = AcknowledgeType.REJECT if is_corrupt else AcknowledgeType.RELEASE
            self._acknowledge_below(batch.base_offset, GAP, acknowledgements)
            self._acknowledge_below(batch.last_offset + 1, kind, acknowledgements)
            if is_corrupt:
                raise self._corrupt(str(error)) from error
            raise
        in_flight, epoch, timestamp_type = self.in_flight, batch.partition_leader_epoch, batch.timestamp_type
        records: list[ShareRecord] = []
        for offset, timestamp, key, value, headers in found:
            if offset > self._current.first:
                self._acknowledge_below(offset, GAP, acknowledgements)
            first, last, delivery_count = self._current
            if offset < first:
                continue
            record = ShareRecord(
                in_flight, offset, timestamp, timestamp_type, key, value, headers, epoch, delivery_count
            )
            in_flight.add(record)
            records.append(record)
            if offset == last:
                self._advance()
            else:
                self._current = _Acquired(offset + 1, last, delivery_count)
        self._acknowledge_below(batch.last_offset + 1, GAP, acknowledgements)
        return records

    def _advance(self) -> None:
        self._current = self._later.pop() if self._later else _NONE

    def _acknowledge_below(self, offset: int, kind: int, acknowledgements: Acknowledgements) -> None:
        """Acknowledge all acquired offsets below `offset`."""
        while self._current.last < offset:
            acknowledgements.add_range(self._current.first, self._current.last, kind)
            self._advance()
        first, last, delivery_count = self._current
        if first < offset:
            acknowledgements.add_range(first, offset - 1, kind)
            self._current = _Acquired(offset, last, delivery_count)

    def _corrupt(self, reason: str) -> KafkaError:
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.in_flight.partition.topic_partition}: {reason}")


def _ordered(acquired: Sequence[AcquiredRange]) -> list[_Acquired]:
    """Return the ranges in the order of their offsets; an offset that two ranges contain counts once."""
    ordered: list[_Acquired] = []
    for one in sorted(acquired, key=lambda one: one.first_offset):
        first = max(one.first_offset, ordered[-1].last + 1) if ordered else one.first_offset
        if first <= one.last_offset:
            ordered.append(_Acquired(first, one.last_offset, one.delivery_count))
    return ordered
