"""Seeding and waiting: what is written here a client reads, what a client does is seen here."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.testing import Broker, Clock, KafkaError

PATIENCE_S = 60


def consumed(bootstrap: str, topic: str, group: str, wanted: int) -> list[Any]:
    """So many messages, read and committed by a member of a group."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        found = consumer.consume(wanted, timeout=PATIENCE_S)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def test_what_is_written_is_what_a_client_reads() -> None:
    with Broker({"t": 3}) as broker:
        places = broker.produce("t", ["a", b"b", ("k", "1"), ("k", None, {"h": "x"}), ("ä", "2")])
        assert places[2] == places[3], "one key, one partition"
        found = {(m.key(), m.value(), tuple(m.headers() or ())) for m in consumed(broker.bootstrap, "t", "g", 5)}
        assert found == {
            (None, b"a", ()),
            (None, b"b", ()),
            (b"k", b"1", ()),
            (b"k", None, (("h", b"x"),)),
            ("ä".encode(), b"2", ()),
        }
        assert sum(broker.lag("g", "t").values()) == 0
        committed = broker.committed("g")
        assert sum(committed.values()) == 5
        broker.produce("t", {"k": "3"})
        assert broker.lag("g")[places[2]] == 1
        assert {one.value for one in broker.records("t", places[2].partition)} >= {b"1", None, b"3"}


def test_keys_go_where_clients_send_them() -> None:
    keys = [f"key-{number}" for number in range(50)]
    with Broker({"ours": 7, "theirs": 7}) as broker:
        broker.produce("ours", [(key, "v") for key in keys])
        producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
        for key in keys:
            producer.produce("theirs", b"v", key)
        producer.flush(60)
        broker.wait_for("theirs", 50, timeout=PATIENCE_S)
        ours, theirs = ({one.key: one.partition for one in broker.records(topic)} for topic in ("ours", "theirs"))
        assert ours == theirs


@pytest.mark.parametrize("records", ["one", b"one", [1], [("k", {})], [("k", "v", {}, 4)]])
def test_what_is_no_record(records: Any) -> None:
    with Broker(["t"]) as broker, pytest.raises(TypeError, match=r"is a single record|expected|a record is a value"):
        broker.produce("t", records)


def test_topics_that_are_not_there() -> None:
    with Broker(config={"auto.create.topics.enable": False}) as broker:
        with pytest.raises(KafkaError, match="topic t does not exist"):
            broker.produce("t", ["a"])
        with pytest.raises(KafkaError, match="topic t does not exist"):
            broker.records("t")
        assert broker.committed("nobody") == {}
        broker.create_topic("t")
        with pytest.raises(KafkaError, match="partition 1 does not exist"):
            broker.produce("t", ["a"], partition=1)


def test_records_are_deleted() -> None:
    with Broker({"t": 2}) as broker:
        broker.produce("t", ["a", "b", "c"], partition=0)
        broker.produce("t", ["d"], partition=1)
        assert broker.delete_records("t", 0, before=2) == {TopicPartition("t", 0): 2}
        assert [one.value for one in broker.records("t")] == [b"c", b"d"]
        assert broker.delete_records("t") == {TopicPartition("t", 0): 3, TopicPartition("t", 1): 1}
        assert broker.records("t") == []
        with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
            broker.delete_records("t", 1, before=7)
        with pytest.raises(KafkaError, match="topic u does not exist"):
            broker.delete_records("u")


def test_waiting_for_what_another_thread_writes() -> None:
    with Broker() as broker:
        later = threading.Timer(0.05, lambda: broker.produce("t", ["a", "b"]))
        later.start()
        assert [one.value for one in broker.wait_for("t", 2, timeout=PATIENCE_S)] == [b"a", b"b"]
        later.join()
        with pytest.raises(TimeoutError, match=r"t has 2 of 3 records after 0\.05 s"):
            broker.wait_for("t", 3, timeout=0.05)


def test_waiting_for_a_group() -> None:
    with Broker({"t": 2}) as broker:
        broker.produce("t", ["a"] * 10)
        with pytest.raises(TimeoutError, match="g has lag in t after 0 s: t-0: 5, t-1: 5"):
            broker.wait_for_lag("g", "t", timeout=0)
        reader = threading.Thread(target=consumed, args=(broker.bootstrap, "t", "g", 10))
        reader.start()
        assert set(broker.wait_for_lag("g", "t", timeout=PATIENCE_S).values()) == {0}
        reader.join()


def test_many_records_and_large_ones() -> None:
    with Broker({"t": 2}) as broker:
        broker.produce("t", (f"{number}" for number in range(20_000)))
        broker.produce("t", ["x" * 900_000], partition=0)
        found = broker.records("t")
        assert len(found) == 20_001
        assert {int(one.value or b"") for one in found if len(one.value or b"") < 10} == set(range(20_000))


def test_a_snapshot_starts_brokers_with_data(tmp_path: Path) -> None:
    with Broker({"t": 2}) as broker:
        broker.produce("t", {"k": "v"})
        consumed(broker.bootstrap, "t", "g", 1)
        port = broker.port
        broker.save_snapshot(tmp_path / "snapshot")
        assert broker.port == port
        broker.produce("t", ["later"])
        with pytest.raises(FileExistsError):
            broker.save_snapshot(tmp_path / "snapshot")
    for _ in range(2):
        with Broker(snapshot=tmp_path / "snapshot") as copy:
            assert [one.value for one in copy.records("t")] == [b"v"]
            assert set(copy.committed("g").values()) == {1}
            copy.produce("t", ["only here"])
    with pytest.raises(FileNotFoundError, match="is not a directory"), Broker(snapshot=tmp_path / "none"):
        pass
    with pytest.raises(FileNotFoundError, match="is not a data directory"), Broker(snapshot=tmp_path):
        pass


def test_old_records_go_when_the_test_says_so(tmp_path: Path) -> None:
    with Broker(["t"]) as broker:
        broker.produce("t", ["of 2023"], timestamp_ms=1_700_000_000_000)
        broker.restart()
        assert broker.server.config.log_initial_task_delay_ms == broker.server.config.log_retention_check_interval_ms
        assert len(broker.records("t")) == 1
        broker.save_snapshot(tmp_path / "snapshot")
        broker.expire()
        assert broker.records("t") == []
    with Broker(snapshot=tmp_path / "snapshot", config={"log.retention.check.interval.ms": 3_600_000}) as copy:
        assert copy.server.config.log_initial_task_delay_ms == 3_600_000
        assert len(copy.records("t")) == 1


def test_a_restart_keeps_address_and_data() -> None:
    with Broker(["t"]) as broker:
        broker.produce("t", ["a"])
        address = broker.bootstrap
        broker.restart()
        assert (broker.bootstrap, [one.value for one in broker.records("t")]) == (address, [b"a"])


def test_days_go_by() -> None:
    clock = Clock(datetime(2030, 1, 1, tzinfo=UTC))
    with Broker(clock=clock, config={"offsets.retention.minutes": 60}) as broker:
        broker.create_topic("t", config={"retention.ms": 86_400_000})
        (place,) = broker.produce("t", ["old"])
        assert datetime.fromtimestamp(broker.records("t")[0].timestamp / 1000, UTC).year == 2030
        consumed(broker.bootstrap, "t", "g", 1)
        assert broker.committed("g") == {place: 1}
        clock.advance(hours=25)
        broker.expire()
        assert broker.records("t") == []
        assert broker.committed("g") == {}
        assert broker.lag("g", "t") == {TopicPartition("t", 0): 0}


async def test_the_same_on_the_callers_loop() -> None:
    async with Broker({"t": 2}) as broker:
        await broker.aproduce("t", ["a", "b"])
        assert len(await broker.await_for("t", 2)) == 2
        assert await broker.alag("g", "t") == {TopicPartition("t", 0): 1, TopicPartition("t", 1): 1}
