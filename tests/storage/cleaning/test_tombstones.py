"""Tombstones of a segment: counted in every format, and no further than was wanted."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.storage.cleaning.dirty_folder import marker

from barnabas.protocol.legacy_records import build_message_set
from barnabas.protocol.record import Record
from barnabas.protocol.record_batch_builder import RecordBatchBuilder
from barnabas.storage.cleaning import tombstones
from barnabas.storage.cleaning.tombstones import TombstoneCount, count_tombstones
from barnabas.storage.errors import CorruptSegmentError
from barnabas.storage.file_records import FileRecords
from barnabas.storage.filesystem import OsFileSystem

VALUES = (b"v", None, b"", None, None)


def batch(magic: int, codec: int, base: int) -> bytes:
    if magic < 2:
        return bytes(
            build_message_set([Record(base + i, -1, b"k", v) for i, v in enumerate(VALUES)], magic=magic, codec=codec)
        )
    builder = RecordBatchBuilder(base_offset=base, codec=codec)
    for value in VALUES:
        builder.append(b"k", value, (), 0)
    return bytes(builder.build())


def counted(path: Path, data: bytes, *, batches: int = 1 << 30) -> TombstoneCount:
    path.write_bytes(data)
    left = iter(range(batches - 1))
    return count_tombstones(FileRecords(str(path), OsFileSystem()), lambda: next(left, None) is not None)


def test_all_formats_and_codecs(tmp_path: Path) -> None:
    formats = [(magic, codec) for magic in (0, 1, 2) for codec in range(4)] + [(2, 4)]
    data = b"".join(batch(magic, codec, 10 * at) for at, (magic, codec) in enumerate(formats))
    data += marker(10 * len(formats), 7, commit=True)
    assert counted(tmp_path / "log", data) == (5 * len(formats), 3 * len(formats), len(data))
    assert counted(tmp_path / "log", b"") == (0, 0, 0)


def test_it_ends_when_it_is_told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = batch(2, 0, 0)
    monkeypatch.setattr(tombstones, "BUFFER_BYTES", len(one))
    assert counted(tmp_path / "log", one * 10, batches=4) == (20, 12, 4 * len(one))


@pytest.mark.parametrize("damage", [b"\0" * 100, b"\xff" * 100, batch(2, 0, 0)[:-1]])
def test_damage_is_told(tmp_path: Path, damage: bytes) -> None:
    with pytest.raises(CorruptSegmentError):
        counted(tmp_path / "log", batch(2, 0, 0) + damage)
