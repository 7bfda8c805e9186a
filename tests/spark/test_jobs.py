"""The jobs, against the log cleaner and against plain Python over the same records."""

import random
from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import Cluster, Row, read, read_log

from barnabas import Broker
from barnabas.protocol.compression import Compression
from barnabas.protocol.record_batch import RecordBatchBuilder
from barnabas.spark import jobs
from barnabas.storage.cleaning.clean_job import CleanJob, GroupCleaned, SourceSegment
from barnabas.storage.cleaning.cleaner import clean
from barnabas.storage.filesystem import OsFileSystem

pytestmark = pytest.mark.timeout(280)
NOW = 1_700_000_000_000
DAY = 86_400_000


def random_log(root: Path, chance: random.Random, keys: int, records: int) -> int:
    """A partition folder `t-0` of several segments with gaps, tombstones and every codec; its end offset."""
    folder = root / "t-0"
    folder.mkdir(parents=True)
    offset, segment, parts = 0, 0, b""
    for _ in range(0, records, 50):
        builder = RecordBatchBuilder(base_offset=offset, codec=chance.choice(list(Compression)))
        for _ in range(50):
            value = None if chance.random() < 0.1 else chance.randbytes(chance.randrange(60))
            headers = [("h", b"%d" % offset)] if chance.random() < 0.3 else ()
            builder.append(b"key-%d" % chance.randrange(keys), value, headers, NOW + offset, offset)
            offset += chance.choice([1, 1, 1, 5])
        parts += builder.build()
        if len(parts) > 20_000:
            (folder / f"{segment:020}.log").write_bytes(parts)
            segment, parts = offset, b""
    if parts:
        (folder / f"{segment:020}.log").write_bytes(parts)
    return offset


def cleaned_log(root: Path, target: Path, end: int) -> None:
    """What the log cleaner makes of it, as a folder of its own; tombstones are too young to go."""
    source = root / "t-0"
    segments = tuple(SourceSegment(int(p.stem), p.stat().st_size) for p in sorted(source.glob("*.log")))
    job = CleanJob(str(source), segments, first_dirty_offset=0, first_uncleanable_offset=end, now_ms=NOW)
    (target / "t-0").mkdir(parents=True)
    for event in clean(job, OsFileSystem(), lambda size: None):
        if isinstance(event, GroupCleaned):
            name = f"{event.base_offset:020}.log"
            (source / f"{name}.cleaned").rename(target / "t-0" / name)


def facts(rows: list[Row]) -> list[tuple[Any, ...]]:
    return sorted(
        (r["offset"], r["key"], r["value"], r["timestamp"], str([sorted(h.items()) for h in r["headers"] or ()]))
        for r in rows
    )


@pytest.mark.parametrize("seed", range(3))
def test_compact_keeps_what_the_log_cleaner_keeps(spark: Any, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    end = random_log(tmp_path / "log", chance, keys=chance.choice([3, 200, 5000]), records=4000)
    compacted = tmp_path / "compacted"
    compression = chance.choice(["none", "zstd"])
    jobs.compact(
        jobs.log_records(spark, str(tmp_path / "log")), str(compacted), compression=compression, segment_bytes=30_000
    )
    cleaned_log(tmp_path / "log", tmp_path / "cleaned", end)
    options = {"includeHeaders": "true"}
    expected = facts(read_log({"path": str(tmp_path / "cleaned"), **options}))
    assert facts(read_log({"path": str(compacted), **options})) == expected
    if len(expected) > 1000:
        assert len(list((compacted / "t-0").glob("*.log"))) > 1


def test_a_broker_serves_what_compact_wrote(spark: Any, tmp_path: Path) -> None:
    random_log(tmp_path / "log", random.Random(9), keys=300, records=3000)
    jobs.compact(jobs.log_records(spark, str(tmp_path / "log")), str(tmp_path / "data"), drop_tombstones=True)
    expected = facts(read_log({"path": str(tmp_path / "data"), "includeHeaders": "true"}))
    assert expected and all(row[2] is not None for row in expected)
    with Broker(data_dir=tmp_path / "data") as broker:
        assert broker.server.state.dynamic_config.topic_log_config("t").retention_ms == -1
        broker.expire()
        assert facts(read(Cluster(broker).options("t", includeHeaders="true"))) == expected


def test_a_table_of_latest_values(spark: Any, cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 3)
    cluster.produce("t", [{"key": b"k%d" % (i % 70), "value": b"%d" % i} for i in range(1000)])
    cluster.produce("t", [{"key": b"k3", "value": None}, {"key": None, "value": b"keyless"}])
    found = jobs.table(jobs.topic_records(spark, cluster.bootstrap, "t")).collect()
    expected = {b"k%d" % (i % 70): b"%d" % i for i in range(1000)}
    del expected[b"k3"]
    assert {bytes(row.key): bytes(row.value) for row in found} == expected


def test_export_and_replay(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    cluster.broker.create_topic("t", 2)
    cluster.broker.create_topic("back", 2)
    rows = [{"key": b"k%d" % (i % 7), "value": b"%d" % i, "timestamp": NOW + i * DAY // 500} for i in range(1000)]
    for part in (rows[:600], rows[600:]):
        cluster.produce("t", part)
        query = jobs.export(spark, cluster.bootstrap, "t", path)
        assert query.awaitTermination(100)
    exported = spark.read.parquet(path)
    assert sorted(int(row.value) for row in exported.collect()) == list(range(1000))
    assert {str(row.date) for row in exported.select("date").distinct().collect()} == {
        "2023-11-14", "2023-11-15", "2023-11-16"
    }  # fmt: skip
    for _ in range(2):
        once = {"delivery": "exactly-once", "writeId": "once"}
        jobs.replay(exported, cluster.bootstrap, "back", keep_partitions=True, options=once)

    def order(topic: str) -> list[tuple[Any, ...]]:
        return sorted(
            (r["partition"], r["offset"], r["key"], r["value"], r["timestamp"]) for r in read(cluster.options(topic))
        )

    assert order("back") == order("t")


def test_an_audit(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    first = RecordBatchBuilder(base_offset=0)
    for offset, key, value in ((0, b"a", b"1"), (1, b"b", b"1"), (4, b"a", b"2"), (5, None, b"x"), (9, b"b", None)):
        first.append(key, value, (), NOW + offset, offset)
    broken = RecordBatchBuilder(base_offset=10)
    broken.append(b"c", b"1", (), NOW)
    damaged = bytearray(broken.build())
    damaged[-2] ^= 1
    (folder / f"{0:020}.log").write_bytes(first.build() + bytes(damaged))
    (row,) = jobs.audit(jobs.log_records(spark, str(tmp_path), options={"onCorrupt": "report"})).collect()
    found = row.asDict()
    assert {
        "records": 5, "keys": 2, "repeats": 2, "keyless": 1, "tombstones": 1, "damaged": 1,
        "first_offset": 0, "last_offset": 9, "gaps": 5, "bytes": 8,
    }.items() <= found.items()  # fmt: skip
