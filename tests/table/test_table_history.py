"""Tables whose history is not that of one follower: restored, created by halves, with small files left over."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.table.conftest import location, produce, rows_of
from tests.table.test_follow import NUMBERS, add_rows, follow, iceberg_table, offsets_of, values, written

from barnabas import Broker
from barnabas.table import TableOffsets, open_table
from barnabas.table.parquet_files import TableSettings
from barnabas.table.partitioning import parse_partitioning


def three_commits(broker: Broker, topic: str, to: str) -> None:
    for first in range(0, 30, 10):
        produce(broker, topic, values(10, first))
        assert follow(broker, topic, to) == 10


def time_of(entry: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(entry["timestamp"] / 1000, UTC)


@pytest.mark.parametrize("by", ["version", "time", "time and again"])
def test_a_restored_delta_table_continues_at_the_restored_offsets(
    broker: Broker, topic: str, tmp_path: Path, by: str
) -> None:
    pytest.importorskip("deltalake")
    from deltalake import DeltaTable

    to = location("delta", tmp_path)
    three_commits(broker, topic, to)
    table = DeltaTable(tmp_path / "table")
    # Version 0 creates the table, and each commit adds one.
    times = {entry["version"]: time_of(entry) for entry in table.history()}
    before = {version: times[version - 1] + (times[version] - times[version - 1]) / 2 for version in (2, 3)}
    table.restore(2 if by == "version" else before[3])
    if by == "time and again":
        DeltaTable(tmp_path / "table").restore(before[2])
    rows = 10 if by == "time and again" else 20
    assert len(rows_of(to)) == rows
    found = offsets_of(to)
    assert found is not None and sum(found.offsets.values()) == rows
    assert follow(broker, topic, to) == 30 - rows
    assert written(to) == sorted(f"v{i}" for i in range(30))


def test_a_time_of_a_restore_that_fits_no_version_is_an_error(broker: Broker, topic: str, tmp_path: Path) -> None:
    """As Spark writes it: a local time, here of another time zone."""
    pytest.importorskip("deltalake")
    import json

    from deltalake import DeltaTable

    to = location("delta", tmp_path)
    three_commits(broker, topic, to)
    DeltaTable(tmp_path / "table").restore(2)
    path = tmp_path / "table" / "_delta_log" / f"{4:020}.json"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    (info,) = [line["commitInfo"] for line in lines if "commitInfo" in line]
    for time in ("2100-01-01 12:00:00", "1990-01-01 12:00:00", "noon"):
        info["operationParameters"] = {"version": None, "timestamp": time}
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        with pytest.raises(ValueError, match="version 4 was restored by time"):
            follow(broker, topic, to)


def test_an_empty_table_without_partitions_receives_them(broker: Broker, topic: str, tmp_path: Path) -> None:
    """A follower that created the table and its partitions in two steps has crashed between them."""
    to = location("iceberg", tmp_path)
    with open_table(to) as sink:
        sink.load()
        sink.prepare(pa.schema([("n", pa.int64()), ("timestamp", pa.timestamp("us", tz="UTC"))]))
    layout = TableSettings(partition_by=parse_partitioning("day(timestamp)"))
    produce(broker, topic, values(10))
    assert follow(broker, topic, to, layout) == 10
    assert [field.name for field in iceberg_table(tmp_path).spec().fields] == ["timestamp_day"]
    assert written(to) == sorted(f"v{i}" for i in range(10))
    other = TableSettings(partition_by=parse_partitioning("month(timestamp)"))
    with pytest.raises(ValueError, match="the table is partitioned by timestamp_day"):
        follow(broker, topic, to, other)


@pytest.mark.parametrize("kind", ["parquet", "iceberg", pytest.param("delta", marks=pytest.mark.verify)])
def test_the_partitions_of_a_table_need_not_be_repeated(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    to = location(kind, tmp_path)
    layout = TableSettings(partition_by=parse_partitioning("day(timestamp),partition"))
    produce(broker, topic, values(10))
    assert follow(broker, topic, to, layout) == 10
    produce(broker, topic, values(10, 10))
    assert follow(broker, topic, to) == 10
    assert written(to) == sorted(f"v{i}" for i in range(20))
    if kind == "iceberg":
        parts = iceberg_table(tmp_path).inspect.partitions().to_pylist()
        assert {row["partition"]["partition"] for row in parts} == {0, 1}
    elif kind == "parquet":
        folders = [path.parent for path in (tmp_path / "table").rglob("*.parquet")]
        assert len(folders) == 4 and all(one.parent.name.startswith("timestamp_day=") for one in folders)
    else:
        from deltalake import DeltaTable

        found = pa.table(DeltaTable(tmp_path / "table").get_add_actions(flatten=True)).to_pylist()
        assert {row["partition.partition"] for row in found} == {0, 1}


def test_other_transforms_of_partitions_are_refused(tmp_path: Path) -> None:
    to = location("iceberg", tmp_path)
    with open_table(to) as sink:
        sink.load()
        sink.prepare(NUMBERS)
    with iceberg_table(tmp_path).update_spec() as spec:
        spec.add_field("n", "bucket[4]", "n_bucket")
    with open_table(to) as sink, pytest.raises(ValueError, match=r"cannot write to the partitions bucket\[4\]\(n\)"):
        sink.load()


def test_each_partition_with_enough_small_files_is_merged(tmp_path: Path) -> None:
    to = location("iceberg", tmp_path)
    schema = pa.schema([("n", pa.int64()), ("part", pa.int64())])
    layout = TableSettings(merge_at=3, partition_by=parse_partitioning("part"))
    with open_table(to, layout) as sink:
        sink.load()
        sink.prepare(schema)
        for number in range(4):
            # Partitions 0, 1 and 2 get 4, 3 and 2 files.
            parts = [part for part in range(3) if number >= part]
            sink.write(pa.record_batch([pa.array([number] * len(parts)), pa.array(parts)], schema=schema))
            sink.commit(TableOffsets())
        assert [sink.maintain() for _ in range(3)] == [4, 3, 0]
    table = iceberg_table(tmp_path)
    counts = {row["partition"]["part"]: row["file_count"] for row in table.inspect.partitions().to_pylist()}
    assert counts == {0: 1, 1: 1, 2: 2}
    assert table.scan().to_arrow().num_rows == 9


def test_rows_added_after_a_merge_are_counted(tmp_path: Path) -> None:
    with open_table(location("iceberg", tmp_path), TableSettings(merge_at=3)) as sink:
        sink.load()
        for first in range(3):
            add_rows(sink, first)
        assert sink.maintain() == 3
        for first in range(2):
            assert sink.maintain() == 0
            add_rows(sink, first)
        assert sink.maintain() == 3
