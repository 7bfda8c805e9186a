"""The batches of a file slice that a share fetch returns."""

from __future__ import annotations

import os
from pathlib import Path

from barnabas.protocol.record_batch_builder import RecordBatchBuilder
from barnabas.server.network.connection import JOIN_BYTES
from barnabas.server.share.log_batches import MAX_READ_BYTES, read_batches, slice_of
from barnabas.storage.filesystem import FileSlice


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
    found = read_batches(file_slice(tmp_path / "log", whole))
    assert [(one.batch.base_offset, one.batch.last_offset) for one in found] == [(2 * n, 2 * n + 1) for n in range(30)]
    small = slice_of(file_slice(tmp_path / "log", whole), found[3], found[4])
    assert bytes(small) == b"".join(data[3:5])  # type: ignore[arg-type]
    large = slice_of(file_slice(tmp_path / "log", whole), found[2], found[20])
    assert isinstance(large, FileSlice)
    assert large.read() == b"".join(data[2:21])


def test_a_batch_that_is_cut_off_is_left_out() -> None:
    data = batches(3, 100)
    records = b"".join(data)[:-1]
    found = read_batches(records)
    assert len(found) == 2
    assert bytes(slice_of(records, found[0], found[1])) == b"".join(data[:2])  # type: ignore[arg-type]
