"""Logs in the formats before Kafka 0.11: written, read, rolled, recovered, found by offset and by time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.storage.logs import NOW_MS, base_offsets, offsets_in, open_log

from barnabas.protocol.compression import Compression
from barnabas.protocol.legacy_records import build_message_set
from barnabas.protocol.record_batch import Record, iter_batches
from barnabas.storage.log import Log
from barnabas.storage.log_validator import AppendRules

FORMATS = [("0.9.0", 0), ("0.10.2", 1)]
CODECS = [Compression.NONE, Compression.GZIP]


def append(log: Log, magic: int, codec: Compression, count: int = 3) -> None:
    start = log.log_end_offset
    records = [Record(index, NOW_MS + start + index, b"key", b"value" * 8, ()) for index in range(count)]
    data = build_message_set(records, magic=magic, codec=codec)
    info = log.append_as_leader(memoryview(bytearray(data)), leader_epoch=0, rules=AppendRules())
    assert (info.first_offset, info.last_offset) == (start, start + count - 1)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("version", "magic"), FORMATS)
class TestLegacyLog:
    def settings(self, version: str) -> dict[str, Any]:
        return {"message_format_version": version, "segment_bytes": 1500, "index_interval_bytes": 100}

    def test_it_is_written_and_read(self, tmp_path: Path, version: str, magic: int, codec: Compression) -> None:
        log = open_log(tmp_path / "t-0", **self.settings(version))
        for _ in range(20):
            append(log, magic, codec)
        assert len(base_offsets(log)) > 1
        assert offsets_in(log) == list(range(60))
        assert {one.magic for one in iter_batches(log.read(0, 1 << 20).data)} == {magic}
        assert log.leader_epochs.entries == []

    def test_every_offset_is_found(self, tmp_path: Path, version: str, magic: int, codec: Compression) -> None:
        log = open_log(tmp_path / "t-0", **self.settings(version))
        for _ in range(20):
            append(log, magic, codec)
        assert log.segments[0].indexes.offset.entries > 0
        log.close()
        again = open_log(tmp_path / "t-0", **self.settings(version))
        for offset in range(60):
            first = next(iter_batches(again.read(offset, 1, min_one_message=True).data))
            assert first.last_offset - 2 <= offset <= first.last_offset
        found = again.fetch_offset_by_timestamp(NOW_MS + 31)
        assert (found is None) if magic == 0 else (found is not None and found.offset == 31)

    @pytest.mark.parametrize("cut", [1, 20])
    def test_it_is_recovered(self, tmp_path: Path, version: str, magic: int, codec: Compression, cut: int) -> None:
        log = open_log(tmp_path / "t-0", **self.settings(version))
        for _ in range(20):
            append(log, magic, codec)
        log.close_handles()
        path = Path(log.active_segment.records.path)
        path.write_bytes(path.read_bytes()[:-cut])
        again = open_log(tmp_path / "t-0", clean=False, **self.settings(version))
        lost = 1 if codec is Compression.NONE else 3
        assert again.log_end_offset == 60 - lost
        append(again, magic, codec)
        assert offsets_in(again) == list(range(63 - lost))
