"""A folder that Apache Kafka wrote: read without a broker, and compacted to what Kafka's own cleaner leaves."""

import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from soak.cleaning.kafka_cleaner import KafkaCleaner
from tests.kafka import KafkaServer
from tests.spark.conftest import Row, read_log

from barnabas.spark import jobs

pytestmark = [pytest.mark.verify, pytest.mark.java, pytest.mark.timeout(280)]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HEADERS = {"includeHeaders": "true", "isolationLevel": "read_committed"}


def some_rows(chance: random.Random, count: int) -> list[Row]:
    """Many keys over and over, tombstones, headers, a few records without a key."""
    return [
        {
            "key": None if chance.random() < 0.01 else b"key-%d" % chance.randrange(3000),
            "value": None if chance.random() < 0.1 else chance.randbytes(chance.randrange(400)),
            "headers": [("h", b"%d" % number)] if chance.random() < 0.3 else [],
        }
        for number in range(count)
    ]


def write(bootstrap: str, chance: random.Random) -> list[Row]:
    """All codecs, and transactions of which every other one is aborted; the rows that count."""
    from confluent_kafka import Producer

    written: list[Row] = []
    for number, codec in enumerate(CODECS):
        rows = some_rows(chance, 2500)
        named = {"transactional.id": codec} if number % 2 else {}
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20, **named})
        if named:
            producer.init_transactions(30)
        for aborts in (True, False) if named else (False,):
            if named:
                producer.begin_transaction()
            for row in rows:
                producer.produce("t", **row)
            assert producer.flush(60) == 0
            if named:
                (producer.abort_transaction if aborts else producer.commit_transaction)(30)
        written += rows
    return written


@pytest.fixture(scope="module")
def kafka_folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Row]]:
    """The log directory of a Kafka that was stopped, and what was written to it."""
    folder = tmp_path_factory.mktemp("kafka")
    properties = {"log.segment.bytes": "1048576", "auto.create.topics.enable": "true", "log.cleaner.enable": "false"}
    with KafkaServer(folder / "server", properties=properties) as kafka:
        rows = write(kafka.bootstrap, random.Random(7))
    kept = folder / "kept"
    shutil.copytree(kafka.log_dir / "t-0", kept / "t-0")
    return kept, rows


def facts(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [
        (r["offset"], r["key"], r["value"], r["timestamp"], str([sorted(h.items()) for h in r["headers"] or ()]))
        for r in sorted(rows, key=lambda row: row["offset"])
    ]


def test_a_folder_of_kafka_is_read(kafka_folder: tuple[Path, list[Row]]) -> None:
    folder, written = kafka_folder
    rows = read_log({"path": str(folder), **HEADERS})
    assert [(row["key"], row["value"]) for row in rows] == [(row["key"], row["value"]) for row in written]
    assert {row["codec"] for row in rows} == {"uncompressed", *CODECS[1:]}
    assert len({row["file"] for row in rows}) > 2
    everything = read_log({"path": str(folder), **HEADERS, "isolationLevel": "read_uncommitted"})
    assert len(everything) > len(rows), "aborted records are there, and left out"


def test_compact_leaves_what_kafkas_cleaner_leaves(
    spark: Any, kafka_folder: tuple[Path, list[Row]], tmp_path: Path
) -> None:
    folder, _ = kafka_folder
    cleaned = tmp_path / "cleaned" / "t-0"
    shutil.copytree(folder / "t-0", cleaned)
    end = 1 + max(row["offset"] for row in read_log({"path": str(folder), "includeControl": "true"}))
    # Kafka cleans all but the last segment: here that is an empty one.
    (cleaned / f"{end:020}.log").touch()
    with KafkaCleaner() as kafka:
        now_ms = time.time_ns() // 1_000_000
        figures = kafka.clean(cleaned, high_watermark=end, now_ms=now_ms, topic={"delete.retention.ms": "86400000"})
    assert figures["next_dirty_offset"] == end, figures
    compacted = tmp_path / "compacted"
    records = jobs.log_records(spark, str(folder), options={"isolationLevel": "read_committed"})
    jobs.compact(records, str(compacted))
    expected = facts(read_log({"path": str(cleaned.parent), **HEADERS}))
    assert 1000 < len(expected) <= 3000
    assert any(value is None for _, _, value, _, _ in expected), "tombstones are kept"
    assert facts(read_log({"path": str(compacted), **HEADERS})) == expected
