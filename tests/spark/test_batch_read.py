"""Batch reads, planned and read without Spark: the same code that its planner and its tasks run."""

import datetime
import time
import traceback
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql.types import TimestampType
from tests.spark.conftest import Cluster, Row, columns, read

from barnabas.arrow.data_loss import DataLossError
from barnabas.protocol.errors import KafkaError
from barnabas.spark.batch_reader import RangesPartition
from barnabas.spark.source import BarnabasSource

TIME = 1_700_000_000_000


def numbered(count: int, first: int = 0, **more: Any) -> list[Row]:
    return [
        {"key": b"k%d" % i, "value": b"v%d" % i, "timestamp": TIME + i, **more} for i in range(first, first + count)
    ]


def values(rows: list[Row]) -> list[bytes]:
    return sorted(row["value"] for row in rows)


def test_the_row_is_kafkas(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 1)
    headers = [("a", b"1"), ("a", None), ("b", b"")]
    cluster.produce("t", [{"key": b"k", "value": b"v", "timestamp": TIME, "headers": headers}])
    cluster.produce("t", [{"key": None, "value": None, "timestamp": TIME + 1}])
    time = datetime.datetime.fromtimestamp(TIME / 1000, datetime.UTC)
    first = {
        "key": b"k",
        "value": b"v",
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "timestamp": time,
        "timestampType": 0,
    }
    second = {**first, "key": None, "value": None, "offset": 1, "timestamp": time + datetime.timedelta(milliseconds=1)}
    assert read(cluster.options("t")) == [first, second]
    with_headers = read(cluster.options("t", includeHeaders="true"))
    assert with_headers[0]["headers"] == [{"key": k, "value": v} for k, v in headers]
    assert with_headers[1]["headers"] is None


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(cluster: Cluster, codec: str) -> None:
    cluster.broker.create_topic("t", 2)
    cluster.produce("t", numbered(3000), **{"compression.type": codec})
    assert values(read(cluster.options("t"))) == values(numbered(3000))


def test_append_time_is_told_apart(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 1, {"message.timestamp.type": "LogAppendTime"})
    cluster.produce("t", numbered(10))
    rows = read(cluster.options("t"))
    assert {row["timestampType"] for row in rows} == {1}
    assert all(row["timestamp"].timestamp() > TIME / 1000 + 1000 for row in rows)


def test_a_schema_is_a_projection(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 1)
    cluster.produce("t", numbered(3))
    assert read(cluster.options("t"), columns(offset=int, value=bytes)) == [
        {"offset": i, "value": b"v%d" % i} for i in range(3)
    ]
    with pytest.raises(ValueError, match="unknown column 'size'"):
        read(cluster.options("t"), columns(size=int))
    with pytest.raises(ValueError, match="column 'offset' is bigint, not string"):
        read(cluster.options("t"), columns(offset=str))


def test_values_are_decoded_in_the_source(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 1)
    documents = [b'{"a": 1, "b": "x\\ny", "c": 3}', b'{\n"a": 2}', None, b"null"]
    cluster.produce("t", [{"key": "schlüssel", "value": value} for value in documents])
    options = cluster.options("t", valueFormat="json", keyFormat="string")
    rows = read(options, columns(key=str, value=columns(a=int, b=str)))
    assert [row["value"] for row in rows] == [{"a": 1, "b": "x\ny"}, {"a": 2, "b": None}, None, None]
    assert {row["key"] for row in rows} == {"schlüssel"}
    assert read(cluster.options("t", valueFormat="string"))[0]["value"] == documents[0].decode()


def test_a_value_that_cannot_be_read(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 1)
    cluster.produce("t", [{"value": b'{"a": 1}'}, {"value": b"{broken"}, {"value": b'{"a": 3}'}])
    options = cluster.options("t", valueFormat="json")
    with pytest.raises(ValueError, match=r"b'\{broken' cannot be read"):
        read(options, columns(value=columns(a=int)))
    rows = read({**options, "valueErrors": "null"}, columns(value=columns(a=int)))
    assert [row["value"] for row in rows] == [{"a": 1}, None, {"a": 3}]


def test_avro(cluster: Cluster) -> None:
    fastavro = pytest.importorskip("fastavro", reason="fastavro is not installed")
    from io import BytesIO

    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}
    body = BytesIO()
    fastavro.schemaless_writer(body, schema, {"a": 7})
    cluster.broker.create_topic("t", 1)
    cluster.produce("t", [{"value": b"\0\0\0\0\x05" + body.getvalue()}])
    options = cluster.options("t", valueFormat="confluent-avro", avroSchema=str(schema).replace("'", '"'))
    assert read(options, columns(value=columns(a=int))) == [{"value": {"a": 7}}]


def test_subscriptions(cluster: Cluster) -> None:
    for topic in ("red-1", "red-2", "blue"):
        cluster.broker.create_topic(topic, 2)
        cluster.produce(topic, [{"value": topic.encode(), "partition": p} for p in range(2)])
    assert values(read(cluster.options("red-1,blue"))) == [b"blue", b"blue", b"red-1", b"red-1"]
    assert values(read(cluster.options(subscribePattern="red-.*"))) == [b"red-1", b"red-1", b"red-2", b"red-2"]
    assert values(read(cluster.options(assign='{"blue":[1]}'))) == [b"blue"]
    assert read(cluster.options(subscribePattern="gr.*")) == []
    group = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    group.commit(offsets=[TopicPartition("red-1", 0, 1)], asynchronous=False)
    group.close()
    assert {row["topic"] for row in read(cluster.options(subscribePattern=".*"))} <= {"red-1", "red-2", "blue"}
    assert read(cluster.options("__consumer_offsets")), "who names it means it"
    with pytest.raises(ValueError, match="missing topics: green"):
        read(cluster.options("green"))
    with pytest.raises(ValueError, match="missing partitions: blue-7"):
        read(cluster.options(assign='{"blue":[1,7]}'))


def test_offsets_by_partition(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 2)
    for p in range(2):
        cluster.produce("t", numbered(10, 100 * p, partition=p))
    rows = read(cluster.options("t", startingOffsets='{"t":{"0":3,"1":-2}}', endingOffsets='{"t":{"0":5,"1":-1}}'))
    assert values(rows) == sorted([b"v3", b"v4", *(b"v%d" % i for i in range(100, 110))])
    with pytest.raises(ValueError, match="missing: t-1"):
        read(cluster.options("t", startingOffsets='{"t":{"0":3}}'))
    with pytest.raises(ValueError, match="not read: t-2"):
        read(cluster.options("t", startingOffsets='{"t":{"0":3,"1":1,"2":1}}'))


def test_offsets_by_time(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 1)
    cluster.produce("t", numbered(100))
    rows = read(cluster.options("t", startingTimestamp=str(TIME + 20), endingTimestamp=str(TIME + 30)))
    assert [row["offset"] for row in rows] == list(range(20, 30))
    by_time = {"startingOffsetsByTimestamp": f'{{"t":{{"0":{TIME + 95}}}}}', "startingOffsets": '{"t":{"0":3}}'}
    assert len(read(cluster.options("t", **by_time))) == 5
    late = cluster.options("t", startingTimestamp=str(TIME + 1000))
    with pytest.raises(ValueError, match="no record at or after"):
        read(late)
    assert read({**late, "startingOffsetsByTimestampStrategy": "latest"}) == []
    assert len(read(cluster.options("t", endingTimestamp=str(TIME + 1000)))) == 100


def test_tasks(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 3)
    cluster.produce("t", numbered(3000))

    def tasks(**options: str) -> list[int]:
        source = BarnabasSource(cluster.options("t", **options))
        found = source.reader(source.schema()).partitions()
        assert all(isinstance(part, RangesPartition) for part in found)
        return [sum(r.records for r in part.ranges) for part in found if isinstance(part, RangesPartition)]

    assert tasks() == [3000]
    assert len(tasks(minPartitions="9")) >= 9 and sum(tasks(minPartitions="9")) == 3000
    assert max(tasks(maxRecordsPerPartition="100")) <= 100
    assert len(read(cluster.options("t", minPartitions="9"))) == 3000


def test_an_empty_topic(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 3)
    assert read(cluster.options("t")) == []


def test_records_that_were_deleted_are_data_loss(cluster: Cluster) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    cluster.broker.create_topic("t", 1)
    cluster.produce("t", numbered(100))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for future in admin.delete_records([TopicPartition("t", 0, 60)]).values():
        future.result(30)
    options = cluster.options("t", startingOffsets='{"t":{"0":50}}')
    with pytest.raises(DataLossError, match="offsets 50 to 59 are missing"):
        read(options)
    assert len(read({**options, "failOnDataLoss": "false"})) == 40
    assert len(read(cluster.options("t"))) == 40
    with pytest.raises(DataLossError, match="the log ends at offset 100, before the ending offset 510"):
        read(cluster.options("t", startingOffsets='{"t":{"0":500}}', endingOffsets='{"t":{"0":510}}'))


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_an_ending_offset_behind_the_log(cluster: Cluster, level: str, caplog: pytest.LogCaptureFixture) -> None:
    """Is data loss; where that does not end the query, what there is is read, as Spark's connector does."""
    cluster.broker.create_topic("t", 2)
    for partition in range(2):
        cluster.produce("t", numbered(10, partition=partition))
    ends = {"endingOffsets": '{"t":{"0":25,"1":-1}}', "kafka.isolation.level": level}
    with pytest.raises(DataLossError, match="t-0: the log ends at offset 10, before the ending offset 25"):
        read({**cluster.options("t"), **ends})
    began = time.monotonic()
    assert len(read({**cluster.options("t", failOnDataLoss="false"), **ends})) == 20
    assert time.monotonic() - began < 10 and "before the ending offset 25" in caplog.text
    behind = {**ends, "startingOffsets": '{"t":{"0":20,"1":0}}'}
    assert len(read({**cluster.options("t", failOnDataLoss="false"), **behind})) == 10
    longest = {"endingOffsets": f'{{"t":{{"0":{2**63 - 1},"1":-1}}}}'}
    assert len(read({**cluster.options("t", failOnDataLoss="false"), **longest})) == 20
    with pytest.raises(ValueError, match="is not between -2 and"):
        read(cluster.options("t", endingOffsets=f'{{"t":{{"0":{2**63},"1":-1}}}}'))


def test_a_topic_created_again_while_it_is_read_is_data_loss(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 1)
    cluster.produce("t", numbered(10))
    for fails in ("true", "false"):
        source = BarnabasSource(cluster.options("t", failOnDataLoss=fails))
        reader = source.reader(source.schema())
        (part,) = reader.partitions()
        cluster.broker.delete_topic("t")
        cluster.broker.create_topic("t", 1)
        cluster.produce("t", numbered(10, 50))
        if fails == "true":
            with pytest.raises(DataLossError, match="deleted and created again"):
                list(reader.read(part))
        else:
            assert list(reader.read(part)) == []


@pytest.mark.parametrize(
    ("bootstrap", "said"), [(None, "missing topics: nope"), ("127.0.0.1:1", "cannot reach broker at 127.0.0.1:1")]
)
def test_a_mistake_is_told_without_the_way_through_our_code(cluster: Cluster, bootstrap: str | None, said: str) -> None:
    options = cluster.options("nope")
    if bootstrap is not None:
        options |= {"kafka.bootstrap.servers": bootstrap, "kafka.request.timeout.ms": "100"}
    source = BarnabasSource(options)
    with pytest.raises((KafkaError, ValueError), match=said) as raised:
        source.reader(source.schema()).partitions()
    told = "".join(traceback.format_exception(raised.value)).splitlines()
    assert [line for line in told if "barnabas/spark/" in line and "error_messages.py" not in line] == []


NANOSECONDS = 1_700_000_000_123_456_789


def test_a_timestamp_that_spark_cannot_hold_is_an_error_or_null(cluster: Cluster) -> None:
    """One in nanoseconds by mistake; in microseconds it would have more than 64 bits and come out as another time."""
    cluster.broker.create_topic("t", 1, {"message.timestamp.after.max.ms": str(2**63 - 1)})
    times = [TIME, NANOSECONDS, (2**63 - 1) // 1000]
    cluster.produce("t", [{"value": b"v", "timestamp": time} for time in times])
    schema = columns(timestamp=TimestampType())
    with pytest.raises(ValueError, match=f"timestamp of t-0 at offset 1: {NANOSECONDS} ms"):
        read_columns(cluster.options("t"), schema)
    found = read_columns(cluster.options("t", valueErrors="null"), schema)
    assert found.cast(pa.int64()).to_pylist() == [TIME * 1000, None, times[2] * 1000]
    assert len(read(cluster.options("t"), columns(offset=int))) == 3, "nobody asked for it"


def read_columns(options: dict[str, str], schema: Any) -> Any:
    """The one column, as Arrow has it: times may be behind the last year that Python has."""
    source = BarnabasSource(options)
    reader = source.reader(schema)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return pa.chunked_array([batch.column(0) for batch in batches]).combine_chunks()
