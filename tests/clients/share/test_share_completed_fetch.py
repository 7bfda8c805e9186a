"""Acquired records of one response: which are delivered, and how the others are acknowledged."""

from __future__ import annotations

import random
from collections.abc import Iterable
from math import inf
from typing import Any
from uuid import UUID

import pytest
from tests.cases import in_one_test

from barnabas.clients.share.acknowledgements import GAP, Acknowledgements, AcknowledgeType
from barnabas.clients.share.share_completed_fetch import ShareCompletedFetch
from barnabas.clients.share.share_in_flight_batch import ShareInFlightBatch
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.share_fetch import AcquiredRecords
from barnabas.protocol.record_batch import ControlType, RecordBatchBuilder, control_batch
from barnabas.protocol.topic_partition import TopicIdPartition

PARTITION = TopicIdPartition(UUID(int=1), "t", 0)


def batch(offsets: Iterable[int]) -> bytes:
    """A batch of records at these offsets; the offsets between them were compacted."""
    offsets = list(offsets)
    builder = RecordBatchBuilder(base_offset=offsets[0])
    for offset in offsets:
        builder.append(b"k", b"%d" % offset, offset=offset)
    return builder.build()


def acquired(*ranges: tuple[int, int, int]) -> list[AcquiredRecords]:
    return [AcquiredRecords(first_offset=f, last_offset=last, delivery_count=count) for f, last, count in ranges]


class Read:
    """One response, read to its end in steps."""

    def __init__(self, data: bytes, ranges: list[AcquiredRecords], *, step: int = 3) -> None:
        in_flight: Any = ShareInFlightBatch(None, 1, PARTITION, inf, lambda: 0.0)  # type: ignore[arg-type]
        fetch = ShareCompletedFetch(in_flight, memoryview(data), ranges)
        self.sent = Acknowledgements(PARTITION, inf, lambda: None)
        self.delivered: list[tuple[int, int]] = []
        self.errors: list[KafkaError] = []
        while True:
            try:
                records = fetch.take(step, self.sent)
            except KafkaError as error:
                self.errors.append(error)
                continue
            assert all(record.value == b"%d" % record.offset for record in records)
            self.delivered += [(record.offset, record.delivery_count) for record in records]
            if len(records) < step and not fetch.has_error:
                break
        assert fetch.is_empty

    @property
    def acknowledged(self) -> dict[int, int]:
        return {
            offset: types[0] if len(types) == 1 else types[offset - first]
            for first, last, types in self.sent.batches()
            for offset in range(first, last + 1)
        }


def test_only_acquired_records_are_delivered_with_their_delivery_count() -> None:
    read = Read(batch(range(10)), acquired((2, 4, 1), (7, 7, 3)))
    assert read.delivered == [(2, 1), (3, 1), (4, 1), (7, 3)]
    assert read.acknowledged == {}


def test_acquired_offsets_without_a_record_are_gaps() -> None:
    read = Read(batch([0, 3, 4]) + batch([8, 9]), acquired((0, 9, 1)))
    assert [offset for offset, _ in read.delivered] == [0, 3, 4, 8, 9]
    assert read.acknowledged == dict.fromkeys([1, 2, 5, 6, 7], GAP)


def test_control_records_are_gaps() -> None:
    marker = control_batch(
        ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, base_offset=3, timestamp=0
    )
    read = Read(batch(range(3)) + marker, acquired((0, 3, 1)))
    assert [offset for offset, _ in read.delivered] == [0, 1, 2]
    assert read.acknowledged == {3: GAP}


def test_acquired_offsets_after_the_last_batch_are_released() -> None:
    """No member has seen these records; a gap would archive them for the group."""
    read = Read(batch(range(3)), acquired((0, 5, 1)))
    assert read.acknowledged == dict.fromkeys([3, 4, 5], AcknowledgeType.RELEASE)


def test_a_truncated_batch_is_released() -> None:
    read = Read(batch(range(3)) + batch(range(3, 6))[:-5], acquired((0, 5, 1)))
    assert [offset for offset, _ in read.delivered] == [0, 1, 2]
    assert read.acknowledged == dict.fromkeys([3, 4, 5], AcknowledgeType.RELEASE)


def test_the_acquired_records_of_a_corrupt_batch_are_rejected() -> None:
    damaged = bytearray(batch(range(3, 6)))
    damaged[-1] ^= 1
    read = Read(batch(range(3)) + bytes(damaged) + batch(range(6, 9)), acquired((0, 4, 1), (7, 8, 1)))
    assert [offset for offset, _ in read.delivered] == [0, 1, 2, 7, 8]
    assert read.acknowledged == dict.fromkeys([3, 4], AcknowledgeType.REJECT)
    (error,) = read.errors
    assert str(error) == "CORRUPT_MESSAGE: t-0: the CRC does not match"


def test_records_before_an_error_are_delivered_first() -> None:
    damaged = bytearray(batch(range(3, 6)))
    damaged[-1] ^= 1
    in_flight: Any = ShareInFlightBatch(None, 1, PARTITION, inf, lambda: 0.0)  # type: ignore[arg-type]
    fetch = ShareCompletedFetch(in_flight, memoryview(batch(range(3)) + bytes(damaged)), acquired((0, 5, 1)))
    sent = Acknowledgements(PARTITION, inf, lambda: None)
    assert len(fetch.take(10, sent)) == 3
    assert fetch.has_error
    with pytest.raises(KafkaError, match="CRC"):
        fetch.take(10, sent)
    assert fetch.take(10, sent) == []


def test_an_offset_in_two_ranges_is_delivered_once() -> None:
    read = Read(batch(range(6)), acquired((0, 3, 1), (2, 5, 2)))
    assert read.delivered == [(0, 1), (1, 1), (2, 1), (3, 1), (4, 2), (5, 2)]


def test_a_range_of_any_length_takes_no_memory() -> None:
    read = Read(batch(range(3)), acquired((0, 1 << 60, 1)))
    assert len(read.delivered) == 3
    assert read.sent.batches() == [(3, 1 << 60, [AcknowledgeType.RELEASE])]


@in_one_test("seed", range(60))
def test_every_acquired_offset_is_delivered_or_acknowledged_exactly_once(seed: int) -> None:
    rng = random.Random(seed)
    data, present, offset = b"", set[int](), 0
    for _ in range(rng.randint(1, 6)):
        offset += rng.choice((0, 0, 2))
        kept = [o for o in range(offset, offset + rng.randint(1, 8)) if rng.random() < 0.8] or [offset]
        present.update(kept)
        data += batch(kept)
        offset = kept[-1] + 1
    ranges, at = [], 0
    while at < offset + 3:
        end = at + rng.randint(0, 6)
        if rng.random() < 0.7:
            ranges.append((at, end, rng.randint(1, 5)))
        at = end + 1
    counts = {o: count for first, last, count in ranges for o in range(first, last + 1)}
    read = Read(data, acquired(*ranges), step=rng.randint(1, 5))
    assert dict(read.delivered) == {o: count for o, count in counts.items() if o in present}
    assert len(read.delivered) == len(dict(read.delivered))
    assert read.acknowledged.keys() == counts.keys() - present
    assert all(kind == (GAP if o < offset else AcknowledgeType.RELEASE) for o, kind in read.acknowledged.items())
