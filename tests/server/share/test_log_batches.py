"""The batches of a file slice that a share fetch returns."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
from tests.cases import in_one_test

from barnabas.protocol.record_batch_builder import RecordBatchBuilder
from barnabas.server.network.connection import JOIN_BYTES
from barnabas.server.share.log_batches import MAX_READ_BYTES, read_batches, slice_of
from barnabas.server.share.record_state import AcknowledgementType, AcquireMode
from barnabas.server.share.share_group_settings import ShareGroupSettings
from barnabas.server.share.share_partition import AcquiredRecords, ShareAcknowledgementBatch, SharePartition
from barnabas.storage.filesystem import FileSlice

TYPES = (AcknowledgementType.ACCEPT, AcknowledgementType.ACCEPT, AcknowledgementType.RELEASE)
ALL = {"end_offset": 2**62, "max_records": 1}


def batches(count: int, size: int) -> list[bytes]:
    made = []
    for number in range(count):
        builder = RecordBatchBuilder(base_offset=2 * number)
        for _ in range(2):
            builder.append(None, bytes(size // 2))
        made.append(builder.build())
    return made


def file_slice(path: Path, data: bytes) -> FileSlice:
    path.write_bytes(b"before" + data)
    return FileSlice(os.open(path, os.O_RDONLY), len(data), len(b"before"))


def test_small_parts_are_read_and_large_parts_stay_in_the_file(tmp_path: Path) -> None:
    assert MAX_READ_BYTES >= JOIN_BYTES
    data = batches(30, 10_000)
    whole = b"".join(data)
    found = read_batches(file_slice(tmp_path / "log", whole), **ALL)
    assert [(one.batch.base_offset, one.batch.last_offset) for one in found] == [(2 * n, 2 * n + 1) for n in range(30)]
    small = slice_of(file_slice(tmp_path / "log", whole), found[3], found[4])
    assert bytes(small) == b"".join(data[3:5])  # type: ignore[arg-type]
    large = slice_of(file_slice(tmp_path / "log", whole), found[2], found[20])
    assert isinstance(large, FileSlice)
    assert large.read() == b"".join(data[2:21])


def test_a_batch_that_is_cut_off_is_left_out() -> None:
    data = batches(3, 100)
    records = b"".join(data)[:-1]
    found = read_batches(records, **ALL)
    assert len(found) == 2
    assert bytes(slice_of(records, found[0], found[1])) == b"".join(data[:2])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("end_offset", "max_records", "count"),
    [(0, 1, 1), (0, 2, 2), (-1, 1, 1), (-1, 2, 1), (5, 2, 4), (5, 3, 5), (5, 99, 30)],
)
def test_reading_ends_with_the_last_batch_that_can_be_acquired(
    end_offset: int, max_records: int, count: int, tmp_path: Path
) -> None:
    records = file_slice(tmp_path / "log", b"".join(batches(30, 100)))
    assert len(read_batches(records, end_offset=end_offset, max_records=max_records)) == count


def log_with_gaps(chance: Random) -> list[bytes]:
    """Return batches of 1 to 30 records, with offsets without records between some of them."""
    made, offset = [], 0
    for _ in range(60):
        offset += chance.choice((0, 0, 0, 5, 200))
        builder, count = RecordBatchBuilder(base_offset=offset), chance.randint(1, 30)
        for _ in range(count):
            builder.append(None, b"")
        made.append(builder.build())
        offset += count
    return made


@in_one_test("seed", range(20))
def test_an_acquisition_with_the_batches_read_is_the_same_as_with_all_batches(seed: int) -> None:
    chance = Random(seed)
    log = log_with_gaps(chance)
    settings = ShareGroupSettings(partition_max_record_locks=200)
    whole, part = (SharePartition("g", "t-0", 0, lambda: settings) for _ in range(2))
    for share in (whole, part):
        share.initialize(0, 0, [])
    everything = read_batches(b"".join(log), **ALL)
    acquired: list[AcquiredRecords] = []
    total = 0
    for _ in range(400):
        offset = whole.next_fetch_offset()
        first = next((n for n, one in enumerate(everything) if one.batch.last_offset >= offset), None)
        if first is not None and chance.random() < 0.5:
            records, max_records = b"".join(log[first:]), chance.choice((1, 10, 50, 500))
            mode = chance.choice((AcquireMode.BATCH_OPTIMIZED, AcquireMode.RECORD_LIMIT))
            found = [
                share.acquire(
                    "m",
                    mode,
                    batch_size=50,
                    max_records=max_records,
                    fetch_offset=offset,
                    batches=[one.batch for one in read],
                    now=0,
                )
                for share, read in (
                    (whole, read_batches(records, **ALL)),
                    (part, read_batches(records, end_offset=part.end_offset, max_records=max_records)),
                )
            ]
            assert found[0] == found[1]
            acquired += found[0]
            total += len(found[0])
        elif acquired:
            one = acquired.pop(chance.randrange(len(acquired)))
            types = [chance.choice(TYPES) for _ in range(one.last_offset - one.first_offset + 1)]
            for share in (whole, part):
                update = share.acknowledge("m", [ShareAcknowledgementBatch(*one[:2], types)], 0)
                share.complete(update, is_written=True)
        assert repr(whole) == repr(part)
    assert total > 50
