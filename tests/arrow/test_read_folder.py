"""Segment files as record batches: which records come, in which order, and what damage says."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import compute as pc
from tests.arrow.conftest import BEGIN_MS, batch, folder_of, produce

from barnabas import Broker
from barnabas.arrow import RecordStream, read_folder
from barnabas.protocol.compression import Compression
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.file_layouts import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY, TRANSACTION_INDEX_ENTRY
from barnabas.protocol.legacy_records import build_message_set
from barnabas.protocol.record import Record
from barnabas.protocol.record_batch import ControlType, control_batch

CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]


def offsets(stream: RecordStream) -> list[int]:
    return [offset for batch in stream.select(["offset"]) for offset in batch.column(0).to_pylist()]


def at(offset: int) -> datetime:
    """The time of a record of `batch`."""
    return datetime.fromtimestamp((BEGIN_MS + 1000 * offset) / 1000, UTC)


def test_all_codecs_and_formats(tmp_path: Path) -> None:
    parts = [batch(10 * i, 10, codec=codec) for i, codec in enumerate(CODECS)]
    old = [Record(50 + i, 1000 + i, b"old", b"%d" % i) for i in range(4)]
    parts += [build_message_set(old[:2], magic=0), build_message_set(old[2:], magic=1, codec=Compression.GZIP)]
    folder_of(tmp_path, (0, b"".join(parts)), (54, batch(54, 6)))
    table = read_folder(str(tmp_path)).to_table()
    table.validate(full=True)
    rows = table.to_pylist()
    assert [row["offset"] for row in rows] == list(range(60))
    assert rows[7] == {
        "key": b"k7", "value": b"v7", "topic": "t", "partition": 0, "offset": 7, "timestamp": at(7),
        "timestamp_type": 0, "headers": [{"key": "h", "value": b"7"}],
    }  # fmt: skip
    assert [rows[i]["timestamp_type"] for i in (50, 52)] == [-1, 0]
    assert rows[50]["value"] == b"0" and rows[50]["headers"] is None


def test_what_a_broker_wrote_is_what_its_files_hold(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("t", 3, {"segment.bytes": "20000"})
        broker.create_topic("u", 1)
        produce(broker, "t", [{"value": b"%d" % i} for i in range(5000)], **{"batch.num.messages": "50"})
        produce(broker, "u", [{"value": b"x"}])
        running = read_folder(str(tmp_path), topics="t")
        assert running.count_rows() == 5000
    table = read_folder(str(tmp_path), topics=["t"]).to_table()
    assert sorted(int(value) for value in table["value"].to_pylist()) == list(range(5000))
    for partition in range(3):
        one = table.filter(pc.field("partition") == partition)["offset"].to_pylist()
        assert one == list(range(len(one)))
    assert offsets(read_folder(f"{tmp_path}/u-*")) == [0] == offsets(read_folder(str(tmp_path), topics="u"))


@pytest.fixture
def hundred(tmp_path: Path) -> str:
    """Ten batches of ten records in four segments, with indexes in one of them."""
    folder = folder_of(
        tmp_path,
        *((base, b"".join(batch(i, 10) for i in range(base, base + 30, 10) if i < 100)) for base in (0, 30, 60, 90)),
    )
    size = len(batch(30, 10))
    index = OFFSET_INDEX_ENTRY.struct.pack(19, size) + OFFSET_INDEX_ENTRY.struct.pack(29, 2 * size) + bytes(80)
    (folder / f"{30:020}.index").write_bytes(index)
    times = [TIME_INDEX_ENTRY.struct.pack(BEGIN_MS + 1000 * o, o - 30) for o in (39, 49, 59)]
    (folder / f"{30:020}.timeindex").write_bytes(b"".join(times) + bytes(36))
    return str(tmp_path)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("earliest", "latest", range(100)),
        (35, 57, range(35, 57)),
        (59, 61, range(59, 61)),
        ("latest-7", "latest", range(93, 100)),
        ("earliest+3", "latest - 90", range(3, 10)),
        (at(45), at(61), range(45, 61)),
        (at(0), at(1), range(1)),
        (at(99), "latest", range(99, 100)),
        (datetime(2099, 1, 1, tzinfo=UTC), "latest", range(0)),
        ({0: 98}, {0: "latest"}, range(98, 100)),
        (1000, 2000, range(0)),
        (70, 60, range(0)),
        (at(45).isoformat(), 50, range(45, 50)),
    ],
)
def test_positions(hundred: str, start: Any, end: Any, expected: range) -> None:
    assert offsets(read_folder(hundred, start=start, end=end)) == list(expected)


@pytest.mark.parametrize(
    ("position", "reason"),
    [
        (-1, "not an offset"),
        ("soon", "Expected an offset"),
        (True, "Expected an offset"),
        (1.5, "Expected an offset"),
        (datetime(2026, 1, 1), "no time zone"),
        ("committed:g", "require a broker"),
        ({7: 1}, "partition 7 is not one of the partitions to read"),
    ],
)
def test_positions_that_are_none(hundred: str, position: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_folder(hundred, start=position)


def test_only_the_columns_that_are_asked_for(hundred: str) -> None:
    stream = read_folder(hundred, columns=["offset", "key"], start=95)
    assert stream.schema.names == ["offset", "key"]
    assert stream.to_table().to_pylist()[0] == {"offset": 95, "key": b"k95"}
    with pytest.raises(ValueError, match="unknown column 'keys'"):
        read_folder(hundred, columns=["keys"])


@pytest.mark.parametrize(
    ("expression", "expected", "read"),
    [
        (pc.field("offset") >= 40, range(40, 100), range(40, 100)),
        ((pc.field("offset") > 40) & (pc.field("offset") <= 44), range(41, 45), range(41, 45)),
        (pc.field("offset").isin([12, 77]), [12, 77], range(12, 78)),
        ((pc.field("offset") == 5) | (pc.field("offset") == 9), [5, 9], range(5, 10)),
        (pc.field("timestamp") >= pa.scalar(at(50)), range(50, 100), range(50, 100)),
        (pc.field("timestamp") < pa.scalar(at(50)), range(50), range(100)),
        (pc.field("partition") == 1, [], []),
        (pc.field("topic") == "other", [], []),
        (pc.field("value") == b"v8", [8], range(100)),
        (~(pc.field("offset") < 90), range(90, 100), range(90, 100)),
    ],
)
def test_filters_are_exact_and_narrow_the_read(
    hundred: str, expression: pc.Expression, expected: range, read: range
) -> None:
    stream = read_folder(hundred, filter=expression)
    assert offsets(stream) == list(expected)
    narrowed = [o for r in stream._narrowed(expression) for o in range(r.start, r.end)]
    assert narrowed == list(read)
    assert read_folder(hundred).count_rows(expression) == len(list(expected))


def test_a_filter_that_does_not_fit_is_an_error(hundred: str) -> None:
    with pytest.raises(pa.ArrowException):
        read_folder(hundred, filter=pc.field("nothing") == 1)


def marker(kind: ControlType, offset: int, producer: int) -> bytes:
    return control_batch(
        kind, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=1, base_offset=offset
    )


def test_aborted_and_open_transactions(tmp_path: Path) -> None:
    data = b"".join(
        [
            batch(0, 5, producer=1, transactional=True),
            batch(5, 5, producer=2, transactional=True),
            batch(10, 2),
            marker(ControlType.ABORT, 12, 1),
            marker(ControlType.COMMIT, 13, 2),
            batch(14, 3, producer=1, transactional=True),
            batch(17, 3),
        ]
    )
    folder = folder_of(tmp_path, (0, data))
    (folder / f"{0:020}.txnindex").write_bytes(TRANSACTION_INDEX_ENTRY.struct.pack(0, 1, 0, 12, 5))
    assert offsets(read_folder(str(tmp_path))) == list(range(5, 12))
    assert offsets(read_folder(str(tmp_path), isolation_level="read_uncommitted")) == [*range(12), *range(14, 20)]
    with pytest.raises(ValueError, match="isolation_level"):
        read_folder(str(tmp_path), isolation_level="committed")  # type: ignore[arg-type]


def test_damage_names_the_partition_and_the_offset(tmp_path: Path) -> None:
    bad = bytearray(batch(10, 10))
    bad[-3] ^= 1
    folder_of(tmp_path, (0, batch(0, 10) + bytes(bad) + batch(20, 10)))
    with pytest.raises(ProtocolError, match=r"t-0 at offset 10: .*the CRC of the batch at position") as told:
        read_folder(str(tmp_path)).to_table()
    assert "\n" not in str(told.value)
    assert offsets(read_folder(str(tmp_path), end=10)) == list(range(10)), "records before the damage can be read"


def test_records_that_are_not_what_their_batch_says(tmp_path: Path) -> None:
    good = bytearray(batch(0, 10))
    good[57:61] = (9).to_bytes(4, "big")
    from barnabas.protocol.record_batch import write_crc

    write_crc(memoryview(good))
    folder_of(tmp_path, (0, bytes(good)))
    with pytest.raises(ProtocolError, match=r"t-0 from offset 0: .*out of order"):
        read_folder(str(tmp_path)).to_table()


@pytest.mark.parametrize("length", [-100, -12, 0, 13, 2**31 - 1])
def test_a_damaged_length_is_never_taken_for_the_end(tmp_path: Path, length: int) -> None:
    data = bytearray(batch(0, 10) + batch(10, 10) + batch(20, 10))
    position = len(batch(0, 10))
    data[position + 8 : position + 12] = length.to_bytes(4, "big", signed=True)
    folder = folder_of(tmp_path, (0, bytes(data)))
    index = OFFSET_INDEX_ENTRY.struct.pack(29, position + len(batch(10, 10)))
    (folder / f"{0:020}.index").write_bytes(index + bytes(64))
    with pytest.raises(ProtocolError, match=f"at position {position}"):
        read_folder(str(tmp_path)).to_table()


def test_an_incomplete_batch_at_the_end_is_no_record(tmp_path: Path) -> None:
    folder_of(tmp_path, (0, batch(0, 10) + batch(10, 10)[:-7]))
    assert offsets(read_folder(str(tmp_path))) == list(range(10))


def test_space_that_is_not_written_yet(tmp_path: Path) -> None:
    folder_of(tmp_path, (0, batch(0, 10) + bytes(100_000)))
    assert offsets(read_folder(str(tmp_path))) == list(range(10))


def test_an_empty_partition_and_no_partition(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no partition directory"):
        read_folder(str(tmp_path))
    folder_of(tmp_path, (0, b""))
    table = read_folder(str(tmp_path)).to_table()
    assert table.num_rows == 0 and table.schema == read_folder(str(tmp_path)).schema
    with pytest.raises(ValueError, match="no partition 4"):
        read_folder(str(tmp_path), partitions=[4])


def test_gaps_of_compaction(tmp_path: Path) -> None:
    folder_of(tmp_path, (0, batch(3, 2) + batch(40, 1)), (50, batch(77, 2)))
    assert offsets(read_folder(str(tmp_path))) == [3, 4, 40, 77, 78]
    assert offsets(read_folder(str(tmp_path), start=41, end=78)) == [77]


def test_memory_of_a_filesystem_of_fsspec(tmp_path: Path, hundred: str) -> None:
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    store.put(hundred, "/logs", recursive=True)
    try:
        assert offsets(read_folder("memory://logs", start=35)) == list(range(35, 100))
        assert offsets(read_folder("memory://logs/t-*", start=at(98))) == [98, 99]
    finally:
        store.rm("/logs", recursive=True)
