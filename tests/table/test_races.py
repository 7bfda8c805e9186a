"""Followers of topics whose records are deleted, compacted or aborted in the meantime."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.server_process import wait_until
from tests.table.conftest import location, produce, rows_of
from tests.table.test_follow import offsets_of, values

from barnabas import Broker
from barnabas.arrow import read_topic
from barnabas.table import FollowSettings, TableFollower, open_table
from barnabas.table.parquet_files import TableSettings

pytestmark = pytest.mark.verify


@contextmanager
def following(to: str, settings: FollowSettings) -> Iterator[TableFollower]:
    """Follow on a thread, and merge small files often. The follower ends after the block, without an error."""
    is_over, failures = threading.Event(), list[BaseException]()
    with open_table(to, TableSettings(merge_at=3)) as sink:
        follower = TableFollower(sink, settings, is_stopping=is_over.is_set)

        def run() -> None:
            try:
                follower.run()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield follower
        finally:
            is_over.set()
            thread.join()
        assert failures == []


def is_complete(follower: TableFollower, broker: Broker, topic: str) -> bool:
    """Whether the table has the present ends."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "ends", "log_level": 0})
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1] for p in range(2)}
    consumer.close()
    return {tp.partition: offset for tp, offset in follower._committed.offsets.items()} == ends


def test_retention_that_is_faster_than_the_follower(
    broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each offset is in the table once, or in a gap that was reported."""
    to, chance, warnings = location("iceberg", tmp_path), Random(7), list[str]()
    monkeypatch.setattr("barnabas.table.follower.logger.warning", lambda text, *values: warnings.append(text % values))
    monkeypatch.setattr("barnabas.arrow.data_loss.logger.warning", lambda text, *values: warnings.append(text % values))
    settings = FollowSettings(broker.bootstrap, [topic], interval_s=0.1, on_data_loss="continue")
    with following(to, settings) as follower:
        for first in range(0, 3000, 100):
            produce(broker, topic, values(100, first))
            for partition in range(2):
                broker.delete_records(topic, partition, before=chance.randrange(first // 2, first // 2 + 51))
        produce(broker, topic, values(2, 3000))
        wait_until(lambda: is_complete(follower, broker, topic), timeout_s=60, what="the follower is at the ends")
    rows = [(row["partition"], row["offset"]) for row in rows_of(to)]
    assert len(rows) == len(set(rows))
    gaps = {
        (int(found[1]), offset)
        for text in warnings
        if (found := re.search(rf"{topic}-(\d): offsets (\d+) to (\d+)", text))
        for offset in range(int(found[2]), int(found[3]) + 1)
    }
    assert gaps, "retention was slower"
    assert {(partition, offset) for partition in range(2) for offset in range(1501)} == set(rows) | gaps


@pytest.mark.parametrize("kind", ["iceberg", "delta", "duckdb"])
def test_upserts_of_a_topic_that_is_compacted(tmp_path: Path, kind: str) -> None:
    """The cleaner removes records between two reads of the follower, and transactions are aborted."""
    from confluent_kafka import Producer

    to, chance = location(kind, tmp_path), Random(3)
    cleaner = {"log.cleaner.backoff.ms": "50", "log.cleaner.min.cleanable.ratio": "0.01"}
    compact = {"cleanup.policy": "compact", "segment.bytes": "20000", "delete.retention.ms": "0"}
    with Broker(config=cleaner) as broker:
        broker.create_topic("t", 2, compact)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "x", "log_level": 0})
        producer.init_transactions()
        with following(to, FollowSettings(broker.bootstrap, ["t"], mode="upsert", interval_s=0.1)) as follower:
            for number in range(40):
                producer.begin_transaction()
                for _ in range(50):
                    key = chance.randrange(100)
                    value = None if chance.random() < 0.1 else b"%d" % number + b"x" * 200
                    producer.produce("t", key=b"%d" % key, value=value, partition=key % 2)
                producer.flush()
                if number % 4 == 1:
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
            wait_until(lambda: is_complete(follower, broker, "t"), timeout_s=60, what="the follower is at the ends")
        remaining = read_topic(broker.bootstrap, "t").to_table().to_pylist()
        assert sum(offsets_of(to).offsets.values()) > 2000 and len(remaining) < 1500, "nothing was compacted"
    latest: dict[bytes, Any] = {}
    for row in sorted(remaining, key=lambda row: row["offset"]):
        latest.pop(row["key"], None)
        if row["value"] is not None:
            latest[row["key"]] = (row["offset"], row["value"])
    found = {row["key"]: (row["offset"], row["value"]) for row in rows_of(to)}
    assert found == latest
