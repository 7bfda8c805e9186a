"""The first record that is not older than a timestamp: in large batches as in small ones."""

from __future__ import annotations

import random

import pytest

from barnabas.protocol.compression import Compression
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.record_batch import HEADER_SIZE, RecordBatch, RecordBatchBuilder
from barnabas.storage.record_search import MANY, first_not_older
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
            assert first_not_older(batch, timestamp, start) == expected


def test_a_large_batch_without_sound_records_says_so() -> None:
    batch = built(3 * MANY, Compression.NONE, None)
    batch.view[HEADER_SIZE] = 3  # the length of the first record
    with pytest.raises(ProtocolError):
        first_not_older(batch, 1 << 60, 0)
