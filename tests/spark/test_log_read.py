"""Segment files read without a broker, called without Spark."""

import threading
from itertools import pairwise
from pathlib import Path
from time import sleep
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from tests.spark.conftest import Cluster, columns, read_log
from tests.storage.producer_snapshots import encode_snapshot

from barnabas import Broker
from barnabas.protocol.compression import Compression
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.file_layouts import OFFSET_INDEX_ENTRY, TRANSACTION_INDEX_ENTRY, SnapshotEntry
from barnabas.protocol.legacy_records import build_message_set
from barnabas.protocol.record import Record
from barnabas.protocol.record_batch import ControlType, RecordBatchBuilder, control_batch
from barnabas.spark.log_reader import SegmentsPartition
from barnabas.spark.log_source import BarnabasLogSource

CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]


def batch(first: int, count: int, *, codec: int = 0, producer: int = -1, transactional: bool = False) -> bytes:
    builder = RecordBatchBuilder(
        base_offset=first, codec=codec, producer_id=producer, producer_epoch=0, is_transactional=transactional
    )
    for offset in range(first, first + count):
        builder.append(b"k%d" % offset, b"v%d" % offset, [("h", b"1")], 1_700_000_000_000 + offset)
    return builder.build()


def folder_of(root: Path, *segments: tuple[int, bytes], name: str = "t-3") -> Path:
    folder = root / name
    folder.mkdir()
    for base, data in segments:
        (folder / f"{base:020}.log").write_bytes(data)
    return folder


def test_all_codecs_and_formats_with_their_places(tmp_path: Path) -> None:
    parts = [batch(10 * i, 10, codec=codec) for i, codec in enumerate(CODECS)]
    old = [Record(50 + i, 1000 + i, b"old", b"%d" % i) for i in range(4)]
    parts += [build_message_set(old[:2], magic=0), build_message_set(old[2:], magic=1, codec=Compression.GZIP)]
    folder = folder_of(tmp_path, (0, b"".join(parts)), (54, batch(54, 6)))
    rows = read_log({"path": str(tmp_path), "includeHeaders": "true"})
    assert [row["offset"] for row in rows] == list(range(60))
    assert {(row["topic"], row["partition"]) for row in rows} == {("t", 3)}
    assert [rows[10 * i]["codec"] for i in range(5)] == [codec.config_name for codec in CODECS]
    assert [rows[i]["magic"] for i in (0, 50, 52)] == [2, 0, 1]
    assert [rows[10 * i]["position"] for i in range(6)] == [sum(map(len, parts[:i])) for i in range(6)]
    assert {row["file"] for row in rows[54:]} == {str(folder / f"{54:020}.log")}
    assert rows[7]["headers"] == [{"key": "h", "value": b"1"}] and rows[50]["headers"] is None
    assert all(row["crcValid"] and row["error"] is None for row in rows)
    assert read_log({"path": str(folder)}, columns(offset=int))[-1] == {"offset": 59}


def test_what_a_broker_wrote(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("t", 2, {"segment.bytes": "20000"})
        broker.create_topic("u", 1)
        Cluster(broker).produce("t", [{"value": b"%d" % i} for i in range(5000)], **{"batch.num.messages": "50"})
        Cluster(broker).produce("u", [{"value": b"x"}])
    rows = read_log({"path": str(tmp_path), "topics": "t"})
    assert sorted(int(row["value"]) for row in rows) == list(range(5000))
    assert len({row["file"] for row in rows}) > 2


def test_a_large_segment_is_read_in_pieces(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("t", 1)
        rows = [{"value": b"%06d" % i + b"x" * 500} for i in range(10_000)]
        Cluster(broker).produce("t", rows, **{"batch.num.messages": "50"})
    source = BarnabasLogSource({"path": str(tmp_path), "topics": "t", "splitBytes": "500000"})
    reader = source.reader(source.schema())
    parts = reader.partitions()
    assert len(parts) >= 8
    pieces = [r for part in parts if isinstance(part, SegmentsPartition) for r in part.ranges]
    assert all(a.end == b.start for a, b in pairwise(pieces))
    offsets = [o for part in parts for b in reader.read(part) for o in b.column("offset").to_pylist()]
    assert offsets == list(range(10_000))


def test_a_segment_without_an_index_is_cut_by_its_headers(tmp_path: Path) -> None:
    folder_of(tmp_path, (0, b"".join(batch(10 * i, 10) for i in range(500))))
    source = BarnabasLogSource({"path": str(tmp_path), "splitBytes": "20000"})
    reader = source.reader(source.schema())
    parts = reader.partitions()
    assert len(parts) >= 5
    offsets = [o for part in parts for b in reader.read(part) for o in b.column("offset").to_pylist()]
    assert offsets == list(range(5000))


def test_small_segments_share_a_task(tmp_path: Path) -> None:
    folder_of(tmp_path, *((10 * i, batch(10 * i, 10)) for i in range(20)))
    source = BarnabasLogSource({"path": str(tmp_path)})
    assert len(source.reader(source.schema()).partitions()) == 1


def test_damage_is_an_error_or_a_row(tmp_path: Path) -> None:
    good, bad = batch(0, 10), bytearray(batch(10, 10))
    bad[-3] ^= 1
    folder_of(tmp_path, (0, good + bytes(bad) + batch(20, 10)), (30, batch(30, 5)[:-7]))
    with pytest.raises(ProtocolError, match="CRC of the batch at position"):
        read_log({"path": str(tmp_path)})
    rows = read_log({"path": str(tmp_path), "onCorrupt": "report"})
    assert [row["offset"] for row in rows if row["error"] is None] == [*range(10), *range(20, 30)]
    (damaged,) = [row for row in rows if row["error"] is not None]
    assert damaged["position"] == len(good) and damaged["batchBaseOffset"] == 10 and damaged["crcValid"] is False
    assert damaged["key"] is None and damaged["value"] is None


def test_a_segment_cut_off_in_the_middle_of_a_log(tmp_path: Path) -> None:
    folder_of(tmp_path, (0, batch(0, 10) + batch(10, 10)[:-7]), (20, batch(20, 5)))
    with pytest.raises(ProtocolError, match="incomplete batch at position"):
        read_log({"path": str(tmp_path)})
    rows = read_log({"path": str(tmp_path), "onCorrupt": "report"})
    assert [row["offset"] for row in rows if row["error"] is None] == [*range(10), *range(20, 25)]
    assert sum(row["error"] is not None for row in rows) == 1


def test_garbage_ends_a_segment(tmp_path: Path) -> None:
    folder_of(tmp_path, (0, batch(0, 10) + b"\x07" * 500), (20, batch(20, 5)))
    with pytest.raises(ProtocolError, match="invalid batch at position"):
        read_log({"path": str(tmp_path)})
    rows = read_log({"path": str(tmp_path), "onCorrupt": "report"})
    assert [row["offset"] for row in rows] == [*range(10), -1, *range(20, 25)]


def test_space_not_written_yet_is_the_end(tmp_path: Path) -> None:
    folder_of(tmp_path, (0, batch(0, 10) + bytes(100_000)))
    assert len(read_log({"path": str(tmp_path)})) == 10


@pytest.mark.parametrize("length", [-100, -12, 0, 13, 2**31 - 1])
@pytest.mark.parametrize("is_last", [True, False])
def test_a_damaged_length_is_never_taken_for_the_end(tmp_path: Path, length: int, is_last: bool) -> None:
    data = bytearray(batch(0, 10) + batch(10, 10) + batch(20, 10))
    position = len(batch(0, 10))
    data[position + 8 : position + 12] = length.to_bytes(4, "big", signed=True)
    folder = folder_of(tmp_path, (0, bytes(data)), *(() if is_last else ((30, batch(30, 5)),)))
    index = OFFSET_INDEX_ENTRY.struct.pack(29, position + len(batch(10, 10)))
    (folder / f"{0:020}.index").write_bytes(index + bytes(64))
    with pytest.raises(ProtocolError, match=f"at position {position}"):
        read_log({"path": str(tmp_path)})
    rows = read_log({"path": str(tmp_path), "onCorrupt": "report"})
    assert [row["offset"] for row in rows if row["error"] is None] == [*range(10), *(() if is_last else range(30, 35))]
    assert sum(row["error"] is not None for row in rows) == 1


@pytest.mark.parametrize("is_last", [True, False])
def test_zeros_in_the_middle_are_no_end(tmp_path: Path, is_last: bool) -> None:
    data = batch(0, 10) + bytes(4096) + batch(20, 10)
    folder_of(tmp_path, (0, data), *(() if is_last else ((30, batch(30, 5)),)))
    with pytest.raises(ProtocolError, match="at position"):
        read_log({"path": str(tmp_path)})


def test_a_batch_larger_than_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.arrow.segment_files.BLOCK_BYTES", 100)
    folder_of(tmp_path, (0, batch(0, 50) + batch(50, 1) + batch(51, 80)))
    assert len(read_log({"path": str(tmp_path)})) == 131


def marker(kind: ControlType, offset: int, producer: int) -> bytes:
    return control_batch(
        kind, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=1, base_offset=offset
    )


def test_transactions_are_honoured_on_request(tmp_path: Path) -> None:
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
    everything = [row["offset"] for row in read_log({"path": str(tmp_path)})]
    assert everything == [*range(12), *range(14, 20)]
    committed = [row["offset"] for row in read_log({"path": str(tmp_path), "isolationLevel": "read_committed"})]
    assert committed == list(range(5, 12)), "neither the aborted ones nor anything from the open transaction on"
    shown = read_log({"path": str(tmp_path), "includeControl": "true"})
    assert [row["offset"] for row in shown if row["isControl"]] == [12, 13]


def test_open_transactions_are_known_from_a_snapshot(tmp_path: Path) -> None:
    """The first segment, where the transaction began, is not looked through again."""
    folder = folder_of(tmp_path, (0, batch(0, 5, producer=1, transactional=True)), (5, batch(5, 5)))
    snapshot = encode_snapshot([SnapshotEntry(1, 0, 4, 4, 4, 1, -1, 2)])
    committed = {"path": str(tmp_path), "isolationLevel": "read_committed"}
    (folder / f"{5:020}.snapshot").write_bytes(snapshot)
    assert [row["offset"] for row in read_log(committed)] == [0, 1]
    for unsound in (snapshot[:-1], b"\0\2" + snapshot[2:], snapshot[:-1] + b"\0"):
        (folder / f"{5:020}.snapshot").write_bytes(unsound)
        assert read_log(committed) == [], "a snapshot that is not sound counts for nothing, and the first batch does"


def test_a_transaction_index_of_a_later_version_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, (0, batch(0, 5)))
    (folder / f"{0:020}.txnindex").write_bytes(TRANSACTION_INDEX_ENTRY.struct.pack(1, 7, 0, 3, 3))
    with pytest.raises(ProtocolError, match="unknown transaction index version 1"):
        read_log({"path": str(tmp_path), "isolationLevel": "read_committed"})


def test_a_folder_without_partitions(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no partition directory"):
        read_log({"path": str(tmp_path)})


def test_a_timestamp_that_spark_cannot_hold_is_an_error_or_null(tmp_path: Path) -> None:
    builder = RecordBatchBuilder(base_offset=0)
    for offset, time in enumerate([1_700_000_000_000, 1_700_000_000_000_000_000]):
        builder.append(b"k", b"v", (), time, offset)
    folder_of(tmp_path, (0, builder.build()))
    with pytest.raises(ValueError, match="timestamp of t-3 at offset 1: 1700000000000000000 ms"):
        read_log({"path": str(tmp_path), "onCorrupt": "report"})
    rows = read_log({"path": str(tmp_path), "valueErrors": "null"})
    assert [row["timestamp"] and row["timestamp"].timestamp() for row in rows] == [1_700_000_000, None]


class SlowStore(LocalFileSystem):  # type: ignore[misc]
    """A file system of fsspec whose requests take a while; it has the threads that made them."""

    protocol = "slow"
    threads: ClassVar[set[str]] = set()

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(path.removeprefix("slow://") if isinstance(path, str) else path)

    def info(self, path: str, **kwargs: Any) -> Any:
        self.threads.add(threading.current_thread().name)
        sleep(0.002)
        return super().info(path, **kwargs)


def test_urls_of_fsspec_are_planned_in_parallel(tmp_path: Path) -> None:
    for partition in range(20):
        folder_of(tmp_path, (0, batch(0, 50)), (50, batch(50, 10)), name=f"t-{partition}")
    plain = read_log({"path": str(tmp_path)})
    rows = read_log({"path": f"file://{tmp_path}"})
    assert [{**row, "file": row["file"].removeprefix("file://")} for row in rows] == plain
    assert len(read_log({"path": f"file://{tmp_path}/t-1*", "splitBytes": "1000"})) == 11 * 60
    fsspec.register_implementation("slow", SlowStore, clobber=True)
    assert len(read_log({"path": f"slow://{tmp_path}"})) == 20 * 60
    assert len([name for name in SlowStore.threads if name.startswith("barnabas-files")]) > 1
    with pytest.raises(ValueError, match="combine file systems with ::"):
        read_log({"path": "simplecache::file:///x"})
    with pytest.raises(ValueError, match="nothing"):
        read_log({"path": "nothing://x"})
