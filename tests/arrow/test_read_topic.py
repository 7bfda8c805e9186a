"""Topics of a broker as record batches: ends of a read, projections, isolation, and the engines that consume them."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import compute as pc
from tests.arrow.conftest import BEGIN_MS, produce
from tests.waiting import until

from barnabas import Broker
from barnabas.arrow import RecordStream, read_topic
from barnabas.arrow.data_loss import DataLossError
from barnabas.protocol.errors import KafkaError


def offsets(stream: RecordStream) -> list[int]:
    return stream.to_table()["offset"].to_pylist()


def at(offset: int) -> datetime:
    """The time of a record of `rows`."""
    return datetime.fromtimestamp(BEGIN_MS / 1000 + offset, UTC)


def rows(count: int, **more: object) -> list[dict[str, object]]:
    return [{"key": b"k%d" % i, "value": b"v%d" % i, "timestamp": BEGIN_MS + 1000 * i, **more} for i in range(count)]


@pytest.fixture
def topic(broker: Broker) -> str:
    broker.create_topic("t", 1)
    produce(broker, "t", rows(100))
    return "t"


def test_records_as_they_were_written(broker: Broker) -> None:
    broker.create_topic("t", 3)
    written: list[dict[str, Any]] = [
        {"key": b"k", "value": b"v", "headers": [("a", b"1"), ("a", None), ("b", b"")]},
        {"key": None, "value": None},
        {"key": b"", "value": b""},
        {"key": b"big", "value": b"x" * 900_000},
    ]
    produce(broker, "t", [{**row, "partition": i % 3} for i, row in enumerate(written)])
    table = read_topic(broker.bootstrap, "t").to_table()
    table.validate(full=True)
    found = {(row["partition"], row["offset"]): row for row in table.to_pylist()}
    for i, row in enumerate(written):
        one = found[i % 3, i // 3]
        assert (one["key"], one["value"], one["topic"]) == (row["key"], row["value"], "t")
        assert [(h["key"], h["value"]) for h in one["headers"] or ()] == (row.get("headers") or [])


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs_and_several_partitions(broker: Broker, codec: str) -> None:
    broker.create_topic("t", 4)
    produce(broker, "t", rows(20_000), **{"compression.type": codec})
    table = read_topic(broker.bootstrap, "t", threads=3).to_table()
    assert sorted(int(v[1:]) for v in table["value"].to_pylist()) == list(range(20_000))
    for partition in range(4):
        one = table.filter(pc.field("partition") == partition)["offset"].to_pylist()
        assert one == list(range(len(one)))


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("earliest", "latest", range(100)),
        (35, 57, range(35, 57)),
        ("latest-7", "latest", range(93, 100)),
        ("earliest+3", 10, range(3, 10)),
        (at(45), at(61), range(45, 61)),
        ({0: 98}, "latest", range(98, 100)),
        (timedelta(days=100_000), "latest", range(100)),
        (timedelta(hours=1), "latest", range(0)),
        ("-1h", "latest", range(0)),
        (100, "latest", range(0)),
    ],
)
def test_positions(broker: Broker, topic: str, start: Any, end: Any, expected: range) -> None:
    assert offsets(read_topic(broker.bootstrap, topic, start=start, end=end)) == list(expected)


def test_committed_offsets_of_a_group(broker: Broker, topic: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "log_level": 0})
    consumer.commit(offsets=[TopicPartition(topic, 0, 60)], asynchronous=False)
    consumer.close()
    assert offsets(read_topic(broker.bootstrap, topic, start="committed:g")) == list(range(60, 100))
    assert offsets(read_topic(broker.bootstrap, topic, end="committed:g")) == list(range(60))
    assert offsets(read_topic(broker.bootstrap, topic, start="committed:unknown")) == list(range(100))


def test_the_end_is_fixed_when_the_stream_is_made(broker: Broker, topic: str) -> None:
    stream = read_topic(broker.bootstrap, topic)
    produce(broker, topic, rows(5))
    assert offsets(stream) == list(range(100)) == offsets(stream), "and a stream can be read again"


def test_topics_and_partitions_that_do_not_exist(broker: Broker, topic: str) -> None:
    with pytest.raises(ValueError, match="topic nothing does not exist"):
        read_topic(broker.bootstrap, "nothing")
    with pytest.raises(ValueError, match=r"no partition 3\. It has 1 partitions"):
        read_topic(broker.bootstrap, topic, partitions=[0, 3])
    with pytest.raises(KafkaError, match="cannot reach broker"):
        read_topic("127.0.0.1:1", topic)
    with pytest.raises(ValueError, match=r"isolation\.level"):
        read_topic(broker.bootstrap, topic, isolation_level="none")  # type: ignore[arg-type]


def test_several_topics_in_one_stream(broker: Broker, topic: str) -> None:
    broker.create_topic("u", 2)
    produce(broker, "u", rows(10))
    table = read_topic(broker.bootstrap, ["t", "u"], columns=["topic"]).to_table()
    assert table.group_by("topic").aggregate([([], "count_all")]).sort_by("topic").to_pylist() == [
        {"topic": "t", "count_all": 100},
        {"topic": "u", "count_all": 10},
    ]


def test_aborted_records_never_appear(broker: Broker) -> None:
    from confluent_kafka import Producer

    broker.create_topic("t", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "x", "log_level": 0})
    producer.init_transactions(30)
    for number, commits in enumerate([True, False, True, False]):
        producer.begin_transaction()
        for i in range(10):
            producer.produce("t", value=b"%d-%d" % (number, i))
        producer.flush(30)
        (producer.commit_transaction if commits else producer.abort_transaction)(30)
    values = read_topic(broker.bootstrap, "t").to_table()["value"].to_pylist()
    assert values == [b"%d-%d" % (number, i) for number in (0, 2) for i in range(10)]
    assert read_topic(broker.bootstrap, "t", isolation_level="read_uncommitted").count_rows() == 40
    producer.begin_transaction()
    producer.produce("t", value=b"open")
    producer.flush(30)
    assert read_topic(broker.bootstrap, "t").count_rows() == 20
    producer.abort_transaction(30)


def test_deleted_records_are_an_error_unless_they_may_be_missing(broker: Broker, topic: str) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    stream = read_topic(broker.bootstrap, topic)
    lenient = read_topic(broker.bootstrap, topic, fail_on_data_loss=False)
    for future in admin.delete_records([TopicPartition(topic, 0, 50)]).values():
        future.result(30)
    with pytest.raises(DataLossError, match=r"t-0: offsets 0 to 49 are missing.*fail_on_data_loss"):
        stream.to_table()
    assert offsets(lenient) == list(range(50, 100))
    with pytest.raises(DataLossError):
        read_topic(broker.bootstrap, topic, start=10).to_table()
    with pytest.raises(DataLossError, match="ends at offset 100, before the end 200"):
        read_topic(broker.bootstrap, topic, end=200)
    assert offsets(read_topic(broker.bootstrap, topic)) == list(range(50, 100))
    assert offsets(read_topic(broker.bootstrap, topic, start=10, fail_on_data_loss=False)) == list(range(50, 100))


def test_compacted_gaps_are_no_loss(broker: Broker) -> None:
    broker.create_topic("t", 1, {"cleanup.policy": "compact", "segment.bytes": "20000"})
    produce(
        broker, "t", [{"key": b"%d" % (i % 7), "value": b"%d" % i} for i in range(5000)], **{"batch.num.messages": "50"}
    )
    broker.compact("t")
    table = read_topic(broker.bootstrap, "t", columns=["offset", "value"]).to_table()
    assert table.num_rows < 5000
    assert table["offset"].to_pylist() == [int(v) for v in table["value"].to_pylist()]
    assert table["offset"].to_pylist()[-7:] == list(range(4993, 5000))


def test_a_stream_is_an_arrow_stream(broker: Broker, topic: str) -> None:
    stream = read_topic(broker.bootstrap, topic)
    reader = stream.to_reader()
    assert isinstance(reader, pa.RecordBatchReader) and reader.schema == stream.schema
    assert pa.table(stream)["offset"].to_pylist() == list(range(100))
    assert pa.RecordBatchReader.from_stream(stream).read_all().num_rows == 100
    assert stream.to_table().to_pandas()["offset"].tolist() == list(range(100))
    assert stream.head(3)["offset"].to_pylist() == [0, 1, 2]
    assert "RecordStream of t-0 0-100" in repr(stream)
    with pytest.raises(NotImplementedError):
        stream.get_fragments()


async def test_a_consumer_that_stops_ends_the_threads(broker: Broker) -> None:
    broker.create_topic("t", 4)
    produce(broker, "t", [{"value": b"x" * 10_000} for _ in range(12_000)])
    iterator = iter(read_topic(broker.bootstrap, "t", threads=4))
    next(iterator)
    assert any(thread.name == "barnabas-arrow" for thread in threading.enumerate())
    iterator.close()  # type: ignore[attr-defined]
    await until(lambda: not any(thread.name == "barnabas-arrow" for thread in threading.enumerate()))


def test_progress_reaches_the_end(broker: Broker, topic: str) -> None:
    told: list[tuple[int, int]] = []
    read_topic(broker.bootstrap, topic, progress=lambda done, total: told.append((done, total))).to_table()
    assert told[-1] == (100, 100) and told == sorted(told)
