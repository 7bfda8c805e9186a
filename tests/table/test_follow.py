"""Tables that follow topics: each record once in every format, whatever happens to the topic in between."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.table.conftest import ALL_FORMATS, FORMATS, location, produce, rows_of

from barnabas import Broker
from barnabas.arrow import Avro, Json, RegistryValues
from barnabas.arrow.data_loss import DataLossError
from barnabas.arrow.offset_range import OffsetRange
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.table import FollowSettings, TableConflictError, TableFollower, TableOffsets, open_table
from barnabas.table.parquet_files import ParquetFiles, TableSettings
from barnabas.table.partitioning import parse_partitioning
from barnabas.table.round_reader import read_round
from barnabas.table.table_columns import ColumnSettings, TableColumns


def values(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"key": b"k%d" % (i % 7), "value": b"v%d" % i, "partition": i % 2} for i in range(first, first + count)]


def follow(
    broker: Broker,
    topic: str,
    to: str,
    layout: TableSettings | None = None,
    *,
    columns: ColumnSettings | None = None,
    **settings: Any,
) -> int:
    """Follow to the present ends; return the number of new rows."""
    given = FollowSettings(broker.bootstrap, [topic], columns=columns or ColumnSettings(), **settings)
    with open_table(to, layout) as sink:
        follower = TableFollower(sink, given, is_stopping=lambda: False)
        follower.run(once=True)
        return follower.metrics.rows


def offsets_of(to: str) -> TableOffsets | None:
    with open_table(to) as sink:
        return sink.load()


def written(to: str, column: str = "value") -> list[str]:
    return sorted(row[column].decode() for row in rows_of(to))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_repeated_run_continues(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    to = location(kind, tmp_path)
    produce(broker, topic, values(300))
    assert follow(broker, topic, to) == 300
    assert follow(broker, topic, to) == 0
    produce(broker, topic, values(100, 300))
    assert follow(broker, topic, to) == 100
    assert written(to) == sorted(f"v{i}" for i in range(400))
    found = {(row["partition"], row["offset"]) for row in rows_of(to)}
    assert found == {(p, offset) for p in range(2) for offset in range(200)}
    state = offsets_of(to)
    assert state is not None
    assert sorted(state.offsets.values()) == [200, 200]
    assert set(state.topic_ids) == {topic}


@pytest.mark.parametrize("kind", FORMATS)
def test_fields_become_columns_and_new_fields_are_added(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    to = location(kind, tmp_path)
    first = Json(pa.schema([("n", pa.int32()), ("name", pa.string())]))
    produce(broker, topic, [{"value": json.dumps({"n": i, "name": f"a{i}"}).encode()} for i in range(5)])
    follow(broker, topic, to, columns=ColumnSettings(value=first))
    second = Json(pa.schema([("n", pa.int32()), ("price", pa.decimal128(10, 2)), ("tags", pa.list_(pa.string()))]))
    produce(broker, topic, [{"value": b'{"n": 7, "price": "1.25", "tags": ["x", null]}'}])
    follow(broker, topic, to, columns=ColumnSettings(value=second))
    rows = sorted(rows_of(to), key=lambda row: row["n"])
    assert [row["n"] for row in rows] == [0, 1, 2, 3, 4, 7]
    assert [row["name"] for row in rows] == ["a0", "a1", "a2", "a3", "a4", None]
    assert rows[0]["price"] is None and str(rows[-1]["price"]) == "1.25" and rows[-1]["tags"] == ["x", None]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_type_becomes_wider(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    to = location(kind, tmp_path)
    produce(broker, topic, [{"value": b'{"n": 1}'}])
    follow(broker, topic, to, columns=ColumnSettings(value=Json(pa.schema([("n", pa.int32())]))))
    produce(broker, topic, [{"value": b'{"n": 5000000000}'}])
    wider = ColumnSettings(value=Json(pa.schema([("n", pa.int64())])))
    if kind == "delta":
        with pytest.raises(ValueError, match="column 'n': the Delta table has int32"):
            follow(broker, topic, to, columns=wider)
        return
    follow(broker, topic, to, columns=wider)
    assert sorted(row["n"] for row in rows_of(to)) == [1, 5_000_000_000]
    produce(broker, topic, [{"value": b'{"n": "x"}'}])
    with pytest.raises(ValueError, match="column 'n': the table has int64, and the schema of the topic string"):
        follow(broker, topic, to, columns=ColumnSettings(value=Json(pa.schema([("n", pa.string())]))))


@pytest.mark.parametrize("kind", FORMATS)
def test_upsert_keeps_the_latest_row_of_each_key(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    to = location(kind, tmp_path)
    text = ColumnSettings(key="string", value="string")

    def write(*rows: tuple[str, str | None]) -> None:
        pairs = [{"key": k.encode(), "value": None if v is None else v.encode(), "partition": 0} for k, v in rows]
        produce(broker, topic, pairs)
        follow(broker, topic, to, columns=text, mode="upsert")

    write(("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("d", None))
    assert {row["key"]: row["value"] for row in rows_of(to)} == {"a": "2", "b": "1", "c": "1"}
    write(("b", None), ("c", "2"), ("e", "1"), ("x", "1"), ("x", None))
    rows = rows_of(to)
    assert {row["key"]: row["value"] for row in rows} == {"a": "2", "c": "2", "e": "1"} and len(rows) == 3
    write(("b", "3"))
    assert {row["key"]: row["value"] for row in rows_of(to)} == {"a": "2", "b": "3", "c": "2", "e": "1"}


@pytest.mark.parametrize("kind", FORMATS[:3])
@pytest.mark.parametrize("fields", ["c,year(timestamp)", "key"])
def test_upserts_of_partitioned_tables(broker: Broker, topic: str, tmp_path: Path, kind: str, fields: str) -> None:
    to, layout = location(kind, tmp_path), TableSettings(partition_by=parse_partitioning(fields))
    columns = ColumnSettings(key="string", value=Json(pa.schema([("c", pa.string()), ("n", pa.int64())])))
    written: dict[str, tuple[str | None, int]] = {}
    for number, c in enumerate(("x/ y", None, "x/ y", "z%")):
        rows: list[dict[str, Any]] = [{"key": b"d%d" % number, "value": b"{}"}, {"key": b"d%d" % (number - 1)}]
        for key in ("a", "b", "c")[number % 2 :]:
            rows.append({"key": key.encode(), "value": json.dumps({"c": c, "n": number}).encode()})
            written[key] = c, number
        produce(broker, topic, [{**row, "partition": 0} for row in rows])
        follow(broker, topic, to, layout, columns=columns, mode="upsert")
    written["d3"] = None, None
    assert {row["key"]: (row["c"], row["n"]) for row in rows_of(to)} == written
    assert len(rows_of(to)) == len(written)


def test_an_upsert_of_delta_after_a_change_of_another_program(broker: Broker, topic: str, tmp_path: Path) -> None:
    """Which has deleted a row, and so replaced the file that the upsert replaces."""
    pytest.importorskip("deltalake")
    from deltalake import DeltaTable

    to, text = location("delta", tmp_path), ColumnSettings(key="string", value="string")
    produce(broker, topic, [{"key": b"%d" % i, "value": b"old", "partition": 0} for i in range(10)])
    follow(broker, topic, to, columns=text, mode="upsert")
    settings = FollowSettings(broker.bootstrap, [topic], columns=text, mode="upsert")
    with open_table(to) as sink:
        commit = sink.commit

        def commit_after_other(offsets: TableOffsets) -> Any:
            sink.commit = commit  # type: ignore[method-assign]
            DeltaTable(tmp_path / "table").delete("key = '5'")
            return commit(offsets)

        sink.commit = commit_after_other  # type: ignore[method-assign]
        produce(broker, topic, [{"key": b"3", "value": b"new", "partition": 0}])
        TableFollower(sink, settings, is_stopping=lambda: False).run(once=True)
    expected = {str(i): "new" if i == 3 else "old" for i in range(10) if i != 5}
    assert {row["key"]: row["value"] for row in rows_of(to)} == expected and len(rows_of(to)) == 9


def test_upsert_requires_keys(broker: Broker, topic: str, tmp_path: Path) -> None:
    produce(broker, topic, [{"value": b"v", "partition": 1}])
    with pytest.raises(ValueError, match=rf"record of {topic}-1 at offset 0: it has no key"):
        follow(broker, topic, location("parquet", tmp_path), mode="upsert")


@pytest.mark.parametrize("kind", FORMATS)
def test_aborted_records_never_appear(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    from confluent_kafka import Producer

    to = location(kind, tmp_path)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-t", "log_level": 0})
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        for i in range(10):
            producer.produce(topic, value=b"%d" % number, partition=i % 2)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
        follow(broker, topic, to)
    producer.begin_transaction()
    producer.produce(topic, value=b"open", partition=0)
    producer.flush()
    assert follow(broker, topic, to) == 0, "the transaction is open"
    producer.commit_transaction()
    assert follow(broker, topic, to) == 1
    assert written(to) == ["0"] * 10 + ["2"] * 10 + ["open"]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_topic_that_was_created_again_is_refused(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    to = location(kind, tmp_path)
    produce(broker, topic, values(10))
    follow(broker, topic, to)
    broker.delete_topic(topic)
    broker.create_topic(topic, 2)
    produce(broker, topic, values(40))
    with pytest.raises(DataLossError, match=f"topic '{topic}' was deleted and created again"):
        follow(broker, topic, to)
    assert len(rows_of(to)) == 10


def test_records_deleted_by_retention_are_an_error(broker: Broker, topic: str, tmp_path: Path) -> None:
    to = location("parquet", tmp_path)
    produce(broker, topic, values(10))
    follow(broker, topic, to)
    produce(broker, topic, values(10, 10))
    broker.delete_records(topic, 1, before=8)
    with pytest.raises(DataLossError, match=rf"{topic}-1: offsets 5 to 7 were deleted.*the log starts at 8.*--on-data"):
        follow(broker, topic, to)
    assert follow(broker, topic, to, on_data_loss="continue") == 7
    assert len(rows_of(to)) == 17


@pytest.mark.parametrize("kind", FORMATS[:3])
def test_partitions_by_day_and_field(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    to = location(kind, tmp_path)
    day = 86_400_000
    rows = [{"value": b'{"c": "%s"}' % (b"x/" if i % 3 else b"y"), "timestamp": day * (1 + i % 2)} for i in range(12)]
    produce(broker, topic, [*rows, {"value": b"{}", "timestamp": day}])
    layout = TableSettings(partition_by=parse_partitioning("day(timestamp), c"))
    columns = ColumnSettings(value=Json(pa.schema([("c", pa.string())])))
    assert follow(broker, topic, to, layout, columns=columns) == 13
    found = sorted((row["timestamp"].day, row["c"] or "") for row in rows_of(to))
    assert found == sorted([*((2 + i % 2, "x/" if i % 3 else "y") for i in range(12)), (2, "")])
    assert follow(broker, topic, to, layout, columns=columns) == 0
    with pytest.raises(ValueError, match="the table is partitioned by timestamp_day, c"):
        follow(broker, topic, to, replace(layout, partition_by=parse_partitioning("c")), columns=columns)
    if kind == "iceberg":
        import duckdb

        files = list((tmp_path / "lake").rglob("*.parquet"))
        assert len(files) == 5
        assert duckdb.sql(f"SELECT count(*) FROM read_parquet({[str(f) for f in files]})").fetchall() == [(13,)]


@pytest.mark.parametrize("kind", FORMATS[:3])
def test_small_files_are_merged_and_old_snapshots_expire(
    broker: Broker, topic: str, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = location(kind, tmp_path)
    if kind == "iceberg":
        monkeypatch.setattr("barnabas.table.iceberg_table._EXPIRE_EVERY_S", -1.0)
    layout = TableSettings(merge_at=4, keep_snapshots_s=0, partition_by=parse_partitioning("year(timestamp)"))
    settings = FollowSettings(broker.bootstrap, [topic])
    with open_table(to, layout) as sink:
        follower = TableFollower(sink, settings, is_stopping=lambda: False)
        for number in range(4):
            produce(broker, topic, values(10, 10 * number))
            follower.run(once=True)
        assert sink.maintain() == 4
        assert sink.maintain() == 0
    assert written(to) == sorted(f"v{i}" for i in range(40))
    if kind != "delta":  # whose versions are kept for an hour at least
        files = [path for path in tmp_path.rglob("*.parquet") if "checkpoint" not in path.name]
        assert len(files) == 1
    produce(broker, topic, values(10, 40))
    assert follow(broker, topic, to, layout) == 10
    assert written(to) == sorted(f"v{i}" for i in range(50))


def add_rows(sink: Any, first: int, count: int = 10) -> None:
    """Commit rows without a topic."""
    schema = sink.prepare(NUMBERS)
    sink.write(pa.record_batch([pa.array(range(first, first + count))], schema=schema))
    sink.commit(TableOffsets())


NUMBERS = pa.schema([("n", pa.int64())])


def iceberg_table(folder: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    lake = folder / "lake"
    return SqlCatalog("local", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}").load_table("db.rows")


def files_of_iceberg(folder: Path) -> set[str]:
    """Data files, manifests and manifest lists on the disk."""
    return {f"file://{path}" for path in (folder / "lake").rglob("*") if path.suffix in (".parquet", ".avro")}


def reachable_files(table: Any) -> set[str]:
    found = set()
    for snapshot in table.snapshots():
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            found.add(manifest.manifest_path)
            found |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return found


@pytest.mark.parametrize("history", ["line", "tag", "rollback"])
def test_snapshots_expire_with_the_files_that_no_other_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, history: str
) -> None:
    to = location("iceberg", tmp_path)
    monkeypatch.setattr("barnabas.table.iceberg_table._EXPIRE_EVERY_S", -1.0)
    monkeypatch.setattr("barnabas.table.iceberg_table._EXPIRE_SHARE", 1e9)
    monkeypatch.setattr("barnabas.table.iceberg_table._MOST_EXPIRED", 2)
    with open_table(to, TableSettings(merge_at=0)) as sink:
        for first in range(0, 60, 10):
            sink.load()
            if first == 40:
                sink.upsert(iter([pa.record_batch({"n": range(5)})]), pa.array(range(5)), "n")
                sink.commit(TableOffsets())
            add_rows(sink, first)
    table = iceberg_table(tmp_path)
    snapshots = table.snapshots()
    if history == "tag":
        table.manage_snapshots().create_tag(snapshots[2].snapshot_id, "kept").commit()
    elif history == "rollback":
        table.manage_snapshots().set_current_snapshot(snapshots[3].snapshot_id).commit()
    expected = sorted(iceberg_table(tmp_path).scan().to_arrow()["n"].to_pylist())
    with open_table(to, TableSettings(merge_at=0, keep_snapshots_s=-1)) as sink:
        sink.load()
        for _ in range(4):
            sink.maintain()
    table = iceberg_table(tmp_path)
    assert len(table.snapshots()) == (2 if history == "tag" else 1)
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == expected
    if history == "tag":
        assert len(table.scan(snapshot_id=snapshots[2].snapshot_id).to_arrow()) == 30
    assert reachable_files(table) <= files_of_iceberg(tmp_path)
    lists = {one.manifest_list for one in snapshots} - {one.manifest_list for one in table.snapshots()}
    assert not lists & files_of_iceberg(tmp_path)
    assert {one for one in files_of_iceberg(tmp_path) if one.endswith(".parquet")} == {
        one for one in reachable_files(table) if one.endswith(".parquet")
    }


def test_the_expiry_of_a_snapshot_reads_few_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg.table.snapshots import Snapshot

    to = location("iceberg", tmp_path)
    monkeypatch.setattr("barnabas.table.iceberg_table._EXPIRE_EVERY_S", -1.0)
    monkeypatch.setattr("barnabas.table.iceberg_table._MOST_EXPIRED", 1)
    with open_table(to, TableSettings(merge_at=0, keep_snapshots_s=-1)) as sink:
        sink.load()
        for first in range(0, 60, 10):
            add_rows(sink, first)
        read, manifests = [], Snapshot.manifests

        def count(self: Snapshot, io: Any) -> Any:
            read.append(self.snapshot_id)
            return manifests(self, io)

        monkeypatch.setattr(Snapshot, "manifests", count)
        sink.maintain()
    assert len(set(read)) == 3, "the snapshot that expires, the next one, and the current one"


def test_a_new_table_has_its_partitions_from_the_first_commit(tmp_path: Path) -> None:
    with open_table(location("iceberg", tmp_path), TableSettings(partition_by=parse_partitioning("n"))) as sink:
        sink.load()
        sink.prepare(NUMBERS)
    assert len(list((tmp_path / "lake").rglob("*.metadata.json"))) == 1
    assert [field.name for field in iceberg_table(tmp_path).spec().fields] == ["n"]


def test_upsert_refuses_delete_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg.table import DataScan

    with open_table(location("iceberg", tmp_path)) as sink:
        sink.load()
        add_rows(sink, 0)
        plan_files = DataScan.plan_files

        def with_deletes(self: DataScan) -> Any:
            found = list(plan_files(self))
            for task in found:
                task.delete_files.add(task.file)
            return found

        monkeypatch.setattr(DataScan, "plan_files", with_deletes)
        with pytest.raises(ValueError, match=r"db\.rows: the table has delete files of another program"):
            sink.upsert(iter([]), pa.array([1]), "n")


def test_upsert_refuses_deletion_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to = location("delta", tmp_path)
    with open_table(to) as sink:
        sink.load()
        add_rows(sink, 0)
        features = type("Protocol", (), {"reader_features": ["deletionVectors"]})
        monkeypatch.setattr("deltalake.DeltaTable.protocol", lambda table: features)
        vectors: list[Any] = []
        monkeypatch.setattr("deltalake.DeltaTable.deletion_vectors", lambda table: iter(vectors))
        change = (pa.array([1]), "n")
        sink.upsert(iter([]), *change)
        vectors.append(pa.record_batch({"filepath": ["f"]}))
        with pytest.raises(ValueError, match="the table has deletion vectors of another program"):
            sink.upsert(iter([]), *change)


def test_old_files_of_delta_are_deleted_without_merges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to = location("delta", tmp_path)
    monkeypatch.setattr("barnabas.table.delta_table._VACUUM_EVERY_S", -1.0)
    hours: list[int] = []
    monkeypatch.setattr("deltalake.DeltaTable.vacuum", lambda self, retention_hours, **_: hours.append(retention_hours))
    with open_table(to, TableSettings(merge_at=0, keep_snapshots_s=7200)) as sink:
        sink.load()
        add_rows(sink, 0)
        sink.maintain()
    assert hours == [2]


def test_a_full_disk_keeps_no_files_open() -> None:
    import io

    is_full = False

    class File(io.BytesIO):
        def write(self, data: Any) -> int:
            if is_full:
                raise OSError(28, "No space left on device")
            return super().write(data)

    opened: dict[str, File] = {}

    def create(name: str, values: tuple[Any, ...]) -> File:
        return opened.setdefault(name, File())

    fields = parse_partitioning("n")
    files = ParquetFiles(create, NUMBERS, TableSettings(partition_by=fields), partition_by=fields)
    files.write(pa.record_batch([pa.array(range(3))], schema=NUMBERS))
    is_full = True
    with pytest.raises(OSError, match="No space left"):
        files.finish()
    assert {name for name, _ in files.discard()} == opened.keys()
    assert [file.closed for file in opened.values()] == [True] * 3


def test_an_unreadable_record_stops_with_its_place(broker: Broker, topic: str, tmp_path: Path) -> None:
    produce(broker, topic, [{"value": b'{"n": 1}', "partition": 1}, {"value": b'{"n": "x"}', "partition": 1}])
    columns = ColumnSettings(value=Json(pa.schema([("n", pa.int32())])))
    with pytest.raises(ValueError, match=rf"value of {topic}-1 at offset 1: value b'.*' cannot be read"):
        follow(broker, topic, location("parquet", tmp_path), columns=columns)


@pytest.mark.parametrize("kind", FORMATS)
def test_unreadable_records_in_columns(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    to = location(kind, tmp_path)
    produce(broker, topic, [{"key": b"k", "value": v, "partition": 0} for v in (b'{"n": 1}', b"{", None, b'{"n": 2}')])
    columns = ColumnSettings(value=Json(pa.schema([("n", pa.int32())])), on_error="column")
    assert follow(broker, topic, to, columns=columns) == 4
    rows = sorted(rows_of(to), key=lambda row: row["offset"])
    assert [row["n"] for row in rows] == [1, None, None, 2]
    assert [row["raw_value"] for row in rows] == [None, b"{", None, None]
    assert [row["error"] is None for row in rows] == [True, False, True, True]


def test_new_partitions_begin_at_their_first_record(broker: Broker, topic: str, tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    to = location("parquet", tmp_path)
    follow(broker, topic, to, start="latest")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})  # whose futures fail when it is collected
    (future,) = admin.create_partitions([NewPartitions(topic, 3)]).values()
    future.result()
    produce(broker, topic, [{"value": b"v", "partition": 2}])
    assert follow(broker, topic, to, start="latest") == 1


def test_a_dead_letter_topic_is_not_followed(broker: Broker, topic: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is followed, and cannot be the dead-letter topic"):
        follow(broker, topic, location("parquet", tmp_path), dead_letter_topic=topic)


def test_unreadable_records_in_a_topic(broker: Broker, topic: str, tmp_path: Path) -> None:
    from barnabas.arrow import read_topic

    to, letters = location("parquet", tmp_path), f"{topic}.dead"
    broker.create_topic(letters, 1)
    produce(
        broker, topic, [{"key": b"k", "value": v, "headers": [("h", b"1")]} for v in (b'{"n": 1}', b"{", b'{"n": 2}')]
    )
    columns = ColumnSettings(value=Json(pa.schema([("n", pa.int32())])), on_error="topic")
    assert follow(broker, topic, to, columns=columns, dead_letter_topic=letters) == 2
    (row,) = read_topic(broker.bootstrap, letters).to_table().to_pylist()
    headers = {header["key"]: header["value"] for header in row["headers"]}
    assert (row["key"], row["value"], headers["h"]) == (b"k", b"{", b"1")
    assert headers["__connect.errors.topic"] == topic.encode()
    assert headers["__connect.errors.offset"].isdigit()


def test_topics_by_pattern(broker: Broker, tmp_path: Path) -> None:
    to = location("parquet", tmp_path)
    settings = FollowSettings(broker.bootstrap, ["many-.*"], is_pattern=True, columns=ColumnSettings(topic=True))

    def run() -> None:
        with open_table(to) as sink:
            TableFollower(sink, settings, is_stopping=lambda: False).run(once=True)

    for name in ("many-a", "many-b", "not-many-a"):
        broker.create_topic(name, 1)
        produce(broker, name, [{"value": name.encode()}])
    run()
    broker.create_topic("many-c", 1)
    produce(broker, "many-c", [{"value": b"many-c"}])
    run()
    assert sorted((row["topic"], row["value"]) for row in rows_of(to)) == [
        (f"many-{x}", f"many-{x}".encode()) for x in "abc"
    ]


def test_a_folder_is_read_before_the_topic(tmp_path: Path) -> None:
    """The copy of a log has the records that retention has deleted from the topic since."""
    import shutil

    to = location("parquet", tmp_path)
    with Broker(data_dir=tmp_path / "data", config={"log.retention.ms": "-1"}) as broker:
        broker.create_topic("t", 2)
        produce(broker, "t", values(1000))
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
        produce(broker, "t", values(500, 1000))
        broker.delete_records("t", before=400)
        assert follow(broker, "t", to, folder=str(tmp_path / "copy")) == 1500
        assert follow(broker, "t", to, folder=str(tmp_path / "copy")) == 0
        assert written(to) == sorted(f"v{i}" for i in range(1500))
        broker.create_topic("u", 1)
        (tmp_path / "copy" / "u-0").mkdir()
        text = (tmp_path / "copy" / "t-0" / "partition.metadata").read_text()
        (tmp_path / "copy" / "u-0" / "partition.metadata").write_text(text)
        (tmp_path / "copy" / "u-0" / f"{0:020}.log").write_bytes(b"")
        with pytest.raises(ValueError, match="the records are of another topic named 'u'"):
            follow(broker, "u", location("delta", tmp_path), folder=str(tmp_path / "copy"))


@pytest.mark.parametrize("kind", FORMATS[1:])
def test_a_second_follower_cannot_commit(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    to = location(kind, tmp_path)
    produce(broker, topic, values(10))
    follow(broker, topic, to)
    settings = FollowSettings(broker.bootstrap, [topic])
    with open_table(to) as sink:
        first = TableFollower(sink, settings, is_stopping=lambda: False)
        commit = sink.commit

        def commit_after_other(offsets: TableOffsets) -> Any:
            sink.commit = commit  # type: ignore[method-assign]
            if kind == "duckdb":  # a transaction of the other one would wait for this one
                sink.discard()
            follow(broker, topic, to)
            return commit(offsets)

        sink.commit = commit_after_other  # type: ignore[method-assign]
        produce(broker, topic, values(10, 10))
        with pytest.raises(TableConflictError, match="another follower"):
            first.run(once=True)
    assert written(to) == sorted(f"v{i}" for i in range(20))


@pytest.mark.parametrize("kind", FORMATS[1:3])
def test_a_second_follower_is_found_by_a_merge(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    """A merge that conflicts loads the table again, on which old offsets must not be committed."""
    to = location(kind, tmp_path)
    produce(broker, topic, values(10))
    deadline = time.monotonic() + 20
    with open_table(to) as sink:
        first = TableFollower(
            sink, FollowSettings(broker.bootstrap, [topic]), is_stopping=lambda: time.monotonic() > deadline
        )

        def merge_after_other(is_due: Any = None) -> int:
            produce(broker, topic, values(10, 10))
            follow(broker, topic, to)
            raise TableConflictError("the table has changed")

        sink.maintain = merge_after_other  # type: ignore[method-assign]
        with pytest.raises(TableConflictError, match="another follower"):
            first.run()
    assert written(to) == sorted(f"v{i}" for i in range(20))


def test_small_files_are_merged_while_records_arrive(broker: Broker, topic: str, tmp_path: Path) -> None:
    to = location("parquet", tmp_path)
    produce(broker, topic, [{"value": b"x" * 1000} for _ in range(8000)])
    settings = FollowSettings(broker.bootstrap, [topic], most_bytes=100_000, interval_s=60)
    commits: list[TableOffsets] = []
    with open_table(to, TableSettings(merge_at=2)) as sink:
        follower = TableFollower(sink, settings, is_stopping=lambda: len(commits) == 3)
        commit = sink.commit

        def count_commit(offsets: TableOffsets) -> Any:
            assert sum(offsets.offsets.values()) < 8000, "records wait"
            commits.append(offsets)
            return commit(offsets)

        sink.commit = count_commit  # type: ignore[method-assign]
        follower.run()
    assert len(list((tmp_path / "table").glob("*.parquet"))) == 2


def test_unreadable_records_count_for_the_size_of_a_commit(broker: Broker, topic: str, tmp_path: Path) -> None:
    to, letters = location("parquet", tmp_path), f"{topic}.dead"
    broker.create_topic(letters, 1)
    produce(broker, topic, [{"value": b"x" * 100_000} for _ in range(100)])
    columns = ColumnSettings(value=Json(pa.schema([("n", pa.int32())])), on_error="topic")
    settings = FollowSettings(broker.bootstrap, [topic], columns=columns, dead_letter_topic=letters, most_bytes=1 << 20)
    commits = []
    with open_table(to) as sink:
        follower = TableFollower(sink, settings, is_stopping=lambda: False)
        commit = sink.commit

        def count_commit(offsets: TableOffsets) -> Any:
            commits.append(sum(offsets.offsets.values()))
            return commit(offsets)

        sink.commit = count_commit  # type: ignore[method-assign]
        follower.run(once=True)
    assert commits[-1] == 100 and len(commits) > 1


@pytest.mark.parametrize("on_data_loss", ["stop", "continue"])
def test_a_log_that_ends_before_the_table(
    broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_data_loss: str
) -> None:
    """As after an unclean election: a run up to the present ends reports it too."""
    monkeypatch.setattr("barnabas.table.follower._BEHIND_S", 0.1)
    to = location("parquet", tmp_path)
    produce(broker, topic, values(10))
    follow(broker, topic, to)
    with open_table(to) as sink:
        found = sink.load()
        assert found is not None
        sink.commit(replace(found, offsets={**found.offsets, TopicPartition(topic, 1): 8}))
    if on_data_loss == "stop":
        with pytest.raises(DataLossError, match=rf"{topic}-1: the log ends at offset 5, before offset 8 of the table"):
            follow(broker, topic, to)
        return
    assert follow(broker, topic, to, on_data_loss="continue") == 0
    produce(broker, topic, [{"value": b"v", "partition": 1}])
    # The offsets of the table are still the old ones, since there was no commit.
    assert follow(broker, topic, to, on_data_loss="continue") == 0


def test_records_of_an_emptied_partition_are_reported_once(
    broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = location("parquet", tmp_path)
    produce(broker, topic, values(10))
    follow(broker, topic, to)
    produce(broker, topic, [{"value": b"v", "partition": 1}])
    broker.delete_records(topic, 1, before=6)
    settings = FollowSettings(broker.bootstrap, [topic], on_data_loss="continue")
    waits: list[int] = []
    warnings: list[str] = []
    monkeypatch.setattr("barnabas.table.follower.logger.warning", lambda text, *values: warnings.append(text % values))
    with open_table(to) as sink:
        follower = TableFollower(sink, settings, is_stopping=lambda: len(waits) > 2)
        sink.maintain = lambda *_: waits.append(1) or 0  # type: ignore[method-assign, func-returns-value]
        follower.run()
    assert [text.partition(",")[0] for text in warnings] == [f"{topic}-1: offsets 5 to 5 were deleted"]


def test_a_signal_does_not_wait_for_a_broker() -> None:
    """A broker that does not respond holds the reading thread, and its request is ended."""
    is_interrupted = threading.Event()

    class HungSource:
        @contextmanager
        def open(self, *, headers: bool) -> Iterator[HungSource]:
            yield self

        def read(self, r: OffsetRange) -> Iterator[Any]:
            is_interrupted.wait(20)
            yield from ()

        def interrupt(self) -> None:
            is_interrupted.set()

    ranges = [OffsetRange(TopicPartition("t", 0), 0, 10)]
    columns = TableColumns(ColumnSettings(), ["t"], None)
    source: Any = HungSource()
    assert list(read_round(source, ranges, columns, threads=1, is_stopping=lambda: True)) == []
    assert is_interrupted.is_set()


def test_a_second_process_cannot_open_the_folder(tmp_path: Path) -> None:
    to = location("parquet", tmp_path)
    with open_table(to), pytest.raises(ValueError, match="another process writes to this table"), open_table(to):
        pass


@pytest.mark.parametrize("kind", FORMATS)
def test_a_new_table_may_begin_at_the_end(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    to = location(kind, tmp_path)
    produce(broker, topic, values(10))
    assert follow(broker, topic, to, start="latest") == 0
    produce(broker, topic, values(10, 10))
    assert follow(broker, topic, to, start="latest") == 10
    assert written(to) == sorted(f"v{i}" for i in range(10, 20))


def test_a_commit_is_bounded(broker: Broker, topic: str, tmp_path: Path) -> None:
    to = location("parquet", tmp_path)
    produce(broker, topic, [{"value": b"x" * 1000} for _ in range(20_000)])
    assert follow(broker, topic, to, most_bytes=1 << 20) == 20_000
    assert len(list((tmp_path / "table").glob("*.parquet"))) >= 4
    assert len({(row["partition"], row["offset"]) for row in rows_of(to)}) == 20_000


@pytest.mark.verify
@pytest.mark.parametrize("kind", FORMATS[:3])
def test_files_have_the_target_size(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    import random

    to = location(kind, tmp_path)
    produce(broker, topic, [{"value": random.Random(i).randbytes(1000)} for i in range(40_000)])
    follow(broker, topic, to, TableSettings(target_bytes=4 << 20))
    sizes = [path.stat().st_size for path in tmp_path.rglob("barnabas-*.parquet")]
    assert len(sizes) >= 2 and max(sizes) < 24 << 20
    assert len({(row["partition"], row["offset"]) for row in rows_of(to)}) == 40_000


def test_engines_read_the_tables(broker: Broker, topic: str, tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")
    produce(broker, topic, [{"value": b'{"n": %d}' % i} for i in range(1000)])
    columns = ColumnSettings(value=Json(pa.schema([("n", pa.int64())])))
    tables = {kind: location(kind, tmp_path / kind) for kind in ("parquet", "delta", "iceberg")}
    for to in tables.values():
        Path(to.partition("://")[2].partition("#")[0]).parent.mkdir(parents=True, exist_ok=True)
        follow(broker, topic, to, columns=columns)
    from pyiceberg.catalog.sql import SqlCatalog

    lake = tmp_path / "iceberg" / "lake"
    table = SqlCatalog("local", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}").load_table("db.rows")
    frames: dict[str, Any] = {
        "parquet": pl.scan_parquet(f"{tmp_path}/parquet/table/*.parquet"),
        "delta": pl.scan_delta(f"{tmp_path}/delta/table"),
        "iceberg": pl.scan_iceberg(table),
    }
    for kind, frame in frames.items():
        found = frame.select(pl.len().alias("count"), pl.col("n").sum().alias("sum")).collect().to_dicts()
        assert found == [{"count": 1000, "sum": 499_500}], kind


@pytest.mark.parametrize("kind", FORMATS)
def test_columns_of_records_with_a_prefix(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    to = location(kind, tmp_path)
    produce(broker, topic, [{"key": b"k", "value": b'{"offset": 5}', "headers": [("h", b"1")]}])
    value = Json(pa.schema([("offset", pa.int32())]))
    with pytest.raises(ValueError, match="values have a field 'offset'"):
        follow(broker, topic, to, columns=ColumnSettings(value=value))
    follow(broker, topic, to, columns=ColumnSettings(value=value, prefix="_", headers=True))
    (row,) = rows_of(to)
    assert (row["_key"], row["_offset"], row["offset"]) == (b"k", 0, 5)
    assert [dict(h) for h in row["_headers"]] == [{"key": "h", "value": b"1"}]


@pytest.mark.verify
def test_the_latest_schema_of_a_registry_is_followed(tmp_path: Path) -> None:
    httpx = pytest.importorskip("httpx", reason="pip install 'barnabas[dev]'")
    import io

    import fastavro

    to = location("iceberg", tmp_path)
    text, long = {"name": "tail", "type": "string"}, {"name": "miles", "type": "long", "default": 0}
    schemas = [
        [text, {**long, "type": "int"}],
        [text, long, {"name": "at", "type": ["null", "string"], "default": None}],
        [long],
    ]
    with Broker(topics=["t"], schema_registry=True) as broker:
        given = FollowSettings(
            broker.bootstrap, ["t"], columns=ColumnSettings(value=RegistryValues(broker.schema_registry_url))
        )
        numbers: list[int] = []

        def write(index: int, value: dict[str, Any]) -> None:
            schema = {"type": "record", "name": "Flight", "fields": schemas[index]}
            if len(numbers) == index:
                url = f"{broker.schema_registry_url}/subjects/t-value/versions"
                numbers.append(int(httpx.post(url, json={"schema": json.dumps(schema)}, timeout=60).json()["id"]))
            data = io.BytesIO(b"\0" + numbers[index].to_bytes(4, "big"))
            data.seek(0, 2)
            fastavro.schemaless_writer(data, fastavro.parse_schema(schema), value)
            broker.produce("t", [data.getvalue()])

        with open_table(to) as sink:
            follower = TableFollower(sink, given, is_stopping=lambda: False)
            write(0, {"tail": "N1", "miles": 1})
            follower.run(once=True)
            write(1, {"tail": "N2", "miles": 2**40, "at": "JFK"})
            write(0, {"tail": "N3", "miles": 3})
            follower.run(once=True)
            write(2, {"miles": 4})
            write(0, {"tail": "N5", "miles": 5})
            follower.run(once=True)
    rows = sorted(((row["miles"], row["tail"], row["at"]) for row in rows_of(to)), key=lambda row: row[0])
    assert rows == [(1, "N1", None), (3, "N3", None), (4, None, None), (5, "N5", None), (2**40, "N2", "JFK")]


@pytest.mark.parametrize("kind", FORMATS[1:3])
def test_commits_of_other_writers_are_kept(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    """Another program deletes a row between two commits, and again just before a commit of the follower."""
    to = location(kind, tmp_path)
    text = ColumnSettings(value="string")

    def delete(value: str) -> None:
        if kind == "delta":
            from deltalake import DeltaTable

            DeltaTable(tmp_path / "table").delete(f"value = '{value}'")
            return
        from pyiceberg.catalog.sql import SqlCatalog

        lake = tmp_path / "lake"
        catalog = SqlCatalog("local", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}")
        catalog.load_table("db.rows").delete(f"value = '{value}'")

    produce(broker, topic, values(10))
    follow(broker, topic, to, columns=text)
    delete("v3")
    with open_table(to) as sink:
        follower = TableFollower(
            sink, FollowSettings(broker.bootstrap, [topic], columns=text), is_stopping=lambda: False
        )
        commit = sink.commit

        def commit_after_other(offsets: TableOffsets) -> Any:
            sink.commit = commit  # type: ignore[method-assign]
            delete("v5")
            return commit(offsets)

        sink.commit = commit_after_other  # type: ignore[method-assign]
        produce(broker, topic, values(10, 10))
        follower.run(once=True)
    assert sorted(row["value"] for row in rows_of(to)) == sorted(f"v{i}" for i in range(20) if i not in (3, 5))


@pytest.mark.verify
@pytest.mark.parametrize("kind", ALL_FORMATS[:3])
def test_readers_see_whole_commits_while_the_table_is_written(
    broker: Broker, topic: str, tmp_path: Path, kind: str
) -> None:
    """Each state that an engine reads has the records of each partition up to an offset, each of them once."""
    import threading

    from tests.server_process import wait_until

    to = location(kind, tmp_path)
    settings = FollowSettings(broker.bootstrap, [topic], interval_s=0.1)
    is_over = threading.Event()

    def run() -> None:
        # Merges would hide rows of Parquet from readers for a moment.
        with open_table(to, TableSettings(merge_at=0 if kind == "parquet" else 5)) as sink:
            TableFollower(sink, settings, is_stopping=is_over.is_set).run()

    def read() -> int:
        """Return the number of rows."""
        try:
            rows = [(row["partition"], row["offset"]) for row in rows_of(to)]
        except Exception as error:
            # There is no table yet, both have created the catalog at the same time, or a merge has just deleted a file.
            known = r"No files found|[Nn]o table|does not exist|already exists|not.*found|No such file"
            assert re.search(known, str(error)), error
            return 0
        for partition in range(2):
            offsets = sorted(offset for number, offset in rows if number == partition)
            assert offsets == list(range(len(offsets)))
        return len(rows)

    def is_read(count: int) -> bool:
        return read() == count

    follower = threading.Thread(target=run)
    follower.start()
    try:
        for first in range(0, 600, 30):
            produce(broker, topic, values(30, first))
            read()
            if first % 150 == 120:
                wait_until(partial(is_read, first + 30), timeout_s=60, what="all records are in the table")
    finally:
        is_over.set()
        follower.join()


@pytest.mark.verify
def test_a_leader_that_dies_is_followed_by_another(tmp_path: Path) -> None:
    from tests.server_process import wait_until

    from barnabas.testing import Cluster

    to = location("parquet", tmp_path)
    with Cluster(3, {"t": 2}) as cluster:
        produce(cluster, "t", values(100), acks="all")  # type: ignore[arg-type]
        given = FollowSettings(cluster.bootstrap, ["t"])
        with open_table(to) as sink:
            follower = TableFollower(sink, given, is_stopping=lambda: False)
            follower.run(once=True)
            dead = cluster.leader("t")
            cluster.kill(dead)
            wait_until(lambda: cluster.leader("t") not in (dead, -1), timeout_s=60, what="another leader")
            produce(cluster, "t", values(100, 100), acks="all")  # type: ignore[arg-type]
            follower.run(once=True)
    assert written(to) == sorted(f"v{i}" for i in range(200))


ALL_TYPES = {
    "type": "record",
    "name": "All",
    "fields": [
        {"name": "t", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "d", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "m", "type": {"type": "map", "values": ["null", "int"]}},
        {"name": "s", "type": {"type": "record", "name": "S", "fields": [{"name": "x", "type": ["null", "float"]}]}},
        {"name": "b", "type": "bytes"},
    ],
}


@pytest.mark.parametrize("kind", FORMATS)
def test_types_of_avro(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    import datetime as dt
    import io

    import fastavro

    to = location(kind, tmp_path)
    at = dt.datetime(2024, 5, 1, 12, 30, tzinfo=dt.UTC)
    value = {
        "t": dt.time(1, 2, 3), "d": dt.date(2024, 5, 1), "at": at, "local": at.replace(tzinfo=None),
        "m": {"a": 1, "b": None}, "s": {"x": 1.5}, "b": b"\x00\xff",
    }  # fmt: skip
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(ALL_TYPES), value)
    produce(broker, topic, [{"value": data.getvalue()}])
    columns = ColumnSettings(value=Avro(ALL_TYPES))
    assert follow(broker, topic, to, columns=columns) == 1
    assert follow(broker, topic, to, columns=columns) == 0
    (row,) = rows_of(to)
    assert row["d"] == value["d"] and row["at"] == at and row["local"].replace(tzinfo=None) == value["local"]
    assert dict(row["m"]) == value["m"] and row["s"] == {"x": 1.5} and row["b"] == b"\x00\xff"
    assert row["t"] == (3_723_000_000 if kind == "delta" else value["t"])


@pytest.mark.parametrize("kind", FORMATS)
def test_tables_of_other_programs_are_refused(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    to = location(kind, tmp_path)
    rows = pa.table({"key": [b"k"]})
    if kind == "parquet":
        import pyarrow.parquet as pq

        (tmp_path / "table").mkdir()
        pq.write_table(rows, tmp_path / "table" / "rows.parquet")
    elif kind == "delta":
        from deltalake import write_deltalake

        write_deltalake(str(tmp_path / "table"), rows)
    elif kind == "iceberg":
        from pyiceberg.catalog.sql import SqlCatalog

        lake = tmp_path / "lake"
        lake.mkdir()
        catalog = SqlCatalog("local", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}")
        catalog.create_namespace("db")
        catalog.create_table("db.rows", rows.schema).append(rows)
    else:
        import duckdb

        with duckdb.connect(str(tmp_path / "rows.duckdb")) as connection:
            connection.execute("CREATE TABLE rows AS SELECT 1 AS key")
    produce(broker, topic, values(1))
    with pytest.raises(ValueError, match=r"was not written by this command|no _barnabas_table\.json"):
        follow(broker, topic, to)


def test_offsets_have_the_form_of_the_spark_source() -> None:
    text = '{"a":{"0":5,"1":7},"#ids":{"a":"6f2cf8a1-6f0c-4d5f-9d4b-7d1a4c0e5a11"},"#starts":{"a":{"0":1}}}'
    found = TableOffsets.of_text(text)
    assert TableOffsets.of_text(found.to_text()) == found
    assert sorted(found.offsets.values()) == [5, 7]
    for damaged in ("", "[]", '{"a":{"0":-1}}', '{"a":{"0":true}}', '{"a":{"x":1}}', '{"a":{"0":9223372036854775808}}'):
        with pytest.raises(ValueError, match="offsets of the table"):
            TableOffsets.of_text(damaged)


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ("s3://bucket", "expected iceberg:"),
        ("delta://host/x", "'host' is not a folder on this machine"),
        ("delta:s3://bucket/x", "only folders on this machine"),
        ("duckdb:file", "the name of the table is missing"),
        ("iceberg:///x#rows", "the namespace and name of the table are missing"),
    ],
)
def test_places_that_are_none(to: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_table(to)


@pytest.mark.parametrize("text", ["week(x)", "day()", "a b", "a,a"])
def test_partitions_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="partition by"):
        parse_partitioning(text)
