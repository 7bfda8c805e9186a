"""The first record that is not older than a timestamp: in large batches as in small ones."""

from __future__ import annotations

import random

import pytest

from barnabas.protocol.compression import Compression
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.record_batch import HEADER_SIZE, RecordBatch, RecordBatchBuilder
from barnabas.storage import record_search
from barnabas.storage.log_config import LARGEST_RECORD
from barnabas.storage.record_search import MANY, first_not_older, greatest_timestamp
from barnabas.storage.time_index import TimestampOffset


def built(count: int, codec: Compression, append_time: int | None) -> RecordBatch:
    builder = RecordBatchBuilder(codec=codec, base_offset=70, log_append_time=append_time)
    rng = random.Random(count)
    for number in range(count):
        builder.append(b"key", b"v", (), 1000 + number + rng.randrange(50))
    return RecordBatch(memoryview(bytearray(builder.build())))


@pytest.mark.parametrize("count", [1, MANY, MANY + 1, 3 * MANY])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("append_time", [None, 2000])
def test_large_batches_say_what_their_records_say(count: int, codec: Compression, append_time: int | None) -> None:
    batch = built(count, codec, append_time)
    records = list(batch.records())
    for timestamp in (0, 1000, 1030, 1900, 2000, 2001, 3500, 5000):
        for start in (0, 75, 70 + count - 1, 70 + count):
            found = (TimestampOffset(r.timestamp, r.offset) for r in records)
            expected = next((one for one in found if one.timestamp >= timestamp and one.offset >= start), None)
            assert first_not_older(batch, timestamp, start, LARGEST_RECORD) == expected


def test_a_large_batch_without_sound_records_says_so() -> None:
    batch = built(3 * MANY, Compression.NONE, None)
    batch.view[HEADER_SIZE] = 3  # the length of the first record
    with pytest.raises(ProtocolError):
        first_not_older(batch, 1 << 60, 0, LARGEST_RECORD)


@pytest.mark.parametrize("count", [3, 3 * MANY])
def test_a_decompressed_record_beyond_the_maximum_fails_the_search(count: int) -> None:
    batch = built(count, Compression.GZIP, None)
    assert first_not_older(batch, 0, 0, 100) == TimestampOffset(next(batch.records()).timestamp, 70)
    for search in (lambda: first_not_older(batch, 0, 0, 5), lambda: greatest_timestamp(batch, 0, 5)):
        with pytest.raises(KafkaError) as refused:
            search()
        assert refused.value.code is ErrorCode.INVALID_RECORD
    plain = built(count, Compression.NONE, None)
    assert greatest_timestamp(plain, 0, 5) is not None


def has_no_larger_record(batch: RecordBatch, most: int) -> bool:
    try:
        record_search.check_sizes(batch, most)
    except KafkaError:
        return False
    return True


def test_the_size_check_of_a_large_batch_does_not_visit_each_record(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = built(3 * MANY, Compression.GZIP, None)
    largest = next(most for most in range(100) if has_no_larger_record(batch, most))
    first = TimestampOffset(next(batch.records()).timestamp, 70)
    with pytest.raises(KafkaError):
        first_not_older(batch, 0, 0, largest - 1)
    monkeypatch.setattr(record_search, "check_sizes", None)
    assert first_not_older(batch, 0, 0, largest) == first
