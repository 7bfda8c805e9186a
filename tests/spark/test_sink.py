"""The sink, written to without Spark: places of rows, and replays that are recognised."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType, TimestampType
from tests.server_process import wait_until
from tests.spark.conftest import Cluster, Row, read

from barnabas.arrow.client import BlockingClient
from barnabas.clients.cluster import TopicInfo
from barnabas.clients.partitioner import partition_of_key
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.spark.log_source import BarnabasLogSource
from barnabas.spark.rows import HEADERS_TYPE, arrow_schema
from barnabas.spark.sink import BarnabasWriter, TaskIdentity, TaskSink, create_topic, parse_sink_options
from barnabas.spark.source import BarnabasSource

SCHEMA = StructType(
    [
        StructField("key", StringType()),
        StructField("value", BinaryType()),
        StructField("headers", HEADERS_TYPE),
        StructField("partition", IntegerType()),
        StructField("timestamp", TimestampType()),
    ]
)
PLACE = TaskIdentity("query", 0, 0)
ONCE = {"delivery": "exactly-once", "writeId": "load"}
ALL_OR_NOTHING = {"delivery": "transactional", "writeId": "load"}


def rows(count: int, **more: Any) -> list[Row]:
    return [{"key": f"k{i}", "value": b"v%d" % i, **more} for i in range(count)]


def batches(wanted: list[Row], step: int = 100) -> Iterator[Any]:
    schema = arrow_schema(SCHEMA)
    for start in range(0, len(wanted), step):
        full = [{name: row.get(name) for name in schema.names} for row in wanted[start : start + step]]
        yield pa.RecordBatch.from_pylist(full, schema=schema)


def sink(cluster: Cluster, topic: str, **options: str) -> TaskSink:
    named = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": topic, **options}
    return TaskSink(parse_sink_options(named, SCHEMA, streaming=False))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_arrive_as_they_were(cluster: Cluster, codec: str) -> None:
    cluster.broker.create_topic("t", 3)
    wanted = rows(
        2000, headers=[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], timestamp=1_700_000_000_000_000
    )
    assert sink(cluster, "t", **{"kafka.compression.type": codec}).write(batches(wanted), PLACE).rows == 2000
    found = read(cluster.options("t", includeHeaders="true", keyFormat="string"))
    assert sorted((r["key"], r["value"]) for r in found) == sorted((r["key"], r["value"]) for r in wanted)
    assert all(r["headers"] == wanted[0]["headers"] and r["timestamp"].timestamp() == 1_700_000_000 for r in found)
    assert all(r["partition"] == partition_of_key(r["key"].encode(), 3) for r in found)


def test_a_partition_can_be_asked_for_and_rows_without_key_are_spread(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 3)
    sink(cluster, "t").write(batches([{"value": b"x", "partition": 2}]), PLACE)
    assert [r["partition"] for r in read(cluster.options("t"))] == [2]
    sink(cluster, "t").write(batches([{"value": b"y"}] * 6000), PLACE)
    assert {r["partition"] for r in read(cluster.options("t")) if r["value"] == b"y"} == {0, 1, 2}
    with pytest.raises(ValueError, match="has no partition 3"):
        sink(cluster, "t").write(batches([{"value": b"x", "partition": 3}]), PLACE)


def test_rows_of_the_source_can_be_written_as_they_are(cluster: Cluster) -> None:
    options = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": "t"}
    schema = BarnabasSource(cluster.options("t", includeHeaders="true")).schema()
    assert {"offset", "timestampType"} < set(schema.fieldNames())
    cluster.broker.create_topic("t", 2)
    cluster.broker.create_topic("again", 2)
    sink(cluster, "t").write(batches(rows(20)), PLACE)
    reader = BarnabasSource(cluster.options("t", includeHeaders="true")).reader(schema)
    copied = [batch for part in reader.partitions() for batch in reader.read(part)]
    TaskSink(parse_sink_options(options | {"topic": "again"}, schema, streaming=False)).write(copied, PLACE)
    mine, theirs = (read(cluster.options(name)) for name in ("t", "again"))
    assert [(r["partition"], r["value"]) for r in theirs] == [(r["partition"], r["value"]) for r in mine]


def test_the_topic_is_created_if_that_is_wanted(cluster: Cluster) -> None:
    options = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": "new", "createTopic": "3"}
    parsed = parse_sink_options(options, SCHEMA, streaming=False)
    for _ in range(2):
        create_topic(parsed)
    assert TaskSink(parsed).write(batches(rows(30)), PLACE).rows == 30
    assert {r["partition"] for r in read(cluster.options("new"))} == {0, 1, 2}
    with pytest.raises(ValueError, match="createTopic requires option topic"):
        create_topic(replace(parsed, topic=None))
    with pytest.raises(KafkaError, match="INVALID_TOPIC"):
        create_topic(replace(parsed, topic="a b"))


def test_a_topic_just_created_is_waited_for(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another broker than the controller may hear of it later."""
    options = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": "new", "createTopic": "3"}
    refresh, lagging = BlockingClient.refresh, [1] * 4

    def refresh_of_late(client: BlockingClient, topics: Any) -> None:
        refresh(client, topics)
        if lagging and "new" in client.cluster.topics:
            lagging.pop()
            client.cluster.topics["new"] = TopicInfo("new", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    monkeypatch.setattr(BlockingClient, "refresh", refresh_of_late)
    writer = BarnabasWriter(options, SCHEMA)
    assert not lagging
    assert writer._sink.write(batches(rows(30)), PLACE).rows == 30


def test_what_cannot_be_written(cluster: Cluster) -> None:
    value = StructField("value", BinaryType())
    options = {"kafka.bootstrap.servers": "b:1", "topic": "t"}
    for schema, more, message in (
        (StructType([StructField("key", BinaryType())]), {}, "column 'value' is required"),
        (StructType([value, StructField("size", IntegerType())]), {}, "column 'size' cannot be written"),
        (StructType([StructField("value", IntegerType())]), {}, "cannot be int"),
        (StructType([value]), {"delivery": "exactly-once"}, "requires option writeId"),
        (StructType([value]), {"delivery": "transactional"}, "requires option writeId"),
    ):
        with pytest.raises(ValueError, match=message):
            parse_sink_options(options | more, schema, streaming=False)
    with pytest.raises(ValueError, match="set option topic"):
        parse_sink_options({"kafka.bootstrap.servers": "b:1"}, StructType([value]), streaming=False)


def test_a_mistake_is_told_on_the_driver_without_the_way_through_the_code(cluster: Cluster) -> None:
    """Spark prints the whole traceback; only the wrapper that raises the error is in it."""
    where = {"kafka.bootstrap.servers": cluster.bootstrap}
    source = [
        ({"topic": "nope"}, "topic 'nope' does not exist.*createTopic"),
        ({"topic": "nope", "delivery": "exactly-onec"}, "Expected one of at-least-once"),
        ({}, "set option topic"),
    ]
    for options, message in source:
        with pytest.raises(ValueError, match=message) as found:
            BarnabasSource(where | options).writer(SCHEMA, overwrite=False)
        assert len(found.traceback) == 2
    with pytest.raises(ValueError, match="do you mean onCorrupt") as found:
        BarnabasLogSource({"path": "/", "onCorupt": "report"}).schema()
    assert len(found.traceback) == 2


def test_a_batch_written_again_is_recognised(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 2)
    for expected in (500, 0, 0):
        assert sink(cluster, "t", **ONCE).write(batches(rows(500)), PLACE).rows == expected
    assert len(read(cluster.options("t"))) == 500
    assert sink(cluster, "t", **ONCE).write(batches(rows(500)), TaskIdentity("query", 1, 0)).rows == 500
    assert sink(cluster, "t", **ONCE).write(batches(rows(500)), PLACE).rows == 0, "a batch long done"
    assert len(read(cluster.options("t"))) == 1000


def test_the_same_batch_goes_into_each_of_several_topics_once(cluster: Cluster) -> None:
    """As from `foreachBatch`, where one query writes to two; and by the name of a query that wrote elsewhere before."""
    for topic, partitions in (("t", 2), ("wider", 4)):
        cluster.broker.create_topic(topic, partitions)
        written = [sink(cluster, topic, **ONCE).write(batches(rows(500)), PLACE).rows for _ in range(2)]
        assert written == [500, 0]
        assert {r["partition"] for r in read(cluster.options(topic))} == set(range(partitions))


@pytest.mark.parametrize("survived", [0, 1, 4321, 19_999])
def test_a_task_that_died_on_the_way_is_finished_by_the_next(cluster: Cluster, survived: int) -> None:
    cluster.broker.create_topic("t", 3)
    wanted = rows(20_000)

    def dying() -> Iterator[Any]:
        yield from batches(wanted[:survived], step=1000)
        raise RuntimeError("killed")

    small = {"kafka.batch.size": "2000"}
    writer = sink(cluster, "t", **ONCE, **small)
    import barnabas.spark.task_producer as producing

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producing, "_BUFFER_BYTES", 10_000)
        with pytest.raises(RuntimeError, match="killed"):
            writer.write(dying(), PLACE)
        sink(cluster, "t", **ONCE, **small).write(batches(wanted), PLACE)
    found = [r["value"] for r in read(cluster.options("t"))]
    assert sorted(found) == sorted(r["value"] for r in wanted)


def test_two_attempts_at_once_write_no_row_twice(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 2)
    wanted = rows(5000)
    failures: list[Exception] = []

    def attempt() -> None:
        try:
            sink(cluster, "t", **ONCE).write(batches(wanted), PLACE)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=attempt) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sink(cluster, "t", **ONCE).write(batches(wanted), PLACE)
    found = [r["value"] for r in read(cluster.options("t"))]
    assert sorted(found) == sorted(r["value"] for r in wanted), failures


def committed(cluster: Cluster) -> list[Any]:
    return sorted(r["value"] for r in read(cluster.options("t", **{"kafka.isolation.level": "read_committed"})))


def values(wanted: list[Row]) -> list[Any]:
    return sorted(row["value"] for row in wanted)


def wait_committed(cluster: Cluster, wanted: list[Any]) -> None:
    """Markers are written behind the answer to who commits."""
    wait_until(lambda: committed(cluster) == wanted, timeout_s=60, what="what is committed can be read, nothing else")


def test_a_batch_appears_when_the_driver_says_so(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 3)
    parts, driver = [rows(5000)[:2000], rows(5000)[2000:]], sink(cluster, "t", **ALL_OR_NOTHING)
    for batch in range(2):
        places = [TaskIdentity("query", batch, task) for task in range(2)]
        written = [
            sink(cluster, "t", **ALL_OR_NOTHING).write(batches(part), place)
            for part, place in zip(parts, places, strict=True)
        ]
        assert [one.rows for one in written] == [2000, 3000]
        assert committed(cluster) == values(rows(5000)) * batch
        for _ in range(2):  # told again, as by a driver that did not hear the answer
            driver.end(written, is_commit=True)
        if not batch:
            wait_committed(cluster, values(rows(5000)))
    wait_committed(cluster, sorted(values(rows(5000)) * 2))


def test_a_batch_that_fails_is_never_seen_and_need_not_be_the_same_again(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 3)
    first = [sink(cluster, "t", **ALL_OR_NOTHING).write(batches(rows(100)), PLACE), None]
    sink(cluster, "t", **ALL_OR_NOTHING).end(first, is_commit=False)
    again = sink(cluster, "t", **ALL_OR_NOTHING).write(batches(rows(70)), PLACE)
    sink(cluster, "t", **ALL_OR_NOTHING).end([again], is_commit=True)
    wait_committed(cluster, values(rows(70)))


@pytest.mark.parametrize("survived", [0, 4321])
def test_what_a_task_wrote_before_it_died_is_never_seen(cluster: Cluster, survived: int) -> None:
    cluster.broker.create_topic("t", 3)
    writer = sink(cluster, "t", **ALL_OR_NOTHING, **{"kafka.batch.size": "2000"})
    import barnabas.spark.task_producer as producing

    def dying() -> Iterator[Any]:
        yield from batches(rows(survived), step=1000)
        raise RuntimeError("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producing, "_BUFFER_BYTES", 10_000)
        with pytest.raises(RuntimeError, match="killed"):
            writer.write(dying(), PLACE)
        written = sink(cluster, "t", **ALL_OR_NOTHING).write(batches(rows(9000)), PLACE)
    writer.end([written], is_commit=True)
    wait_committed(cluster, values(rows(9000)))


def test_a_driver_that_died_between_two_tasks_is_finished_by_the_next_run(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 2)
    places = [TaskIdentity("query", 0, task) for task in range(2)]
    driver = sink(cluster, "t", **ALL_OR_NOTHING)
    for expected in ([500, 500], [0, 500]):
        written = [sink(cluster, "t", **ALL_OR_NOTHING).write(batches(rows(500)), place) for place in places]
        assert [one.rows for one in written] == expected
        driver.end(written if expected[0] == 0 else written[:1], is_commit=True)
    wait_committed(cluster, sorted(values(rows(500)) * 2))


def test_an_attempt_that_was_taken_over_cannot_be_committed(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 2)
    driver = sink(cluster, "t", **ALL_OR_NOTHING)
    late = sink(cluster, "t", **ALL_OR_NOTHING).write(batches(rows(10)), PLACE)
    heir = sink(cluster, "t", **ALL_OR_NOTHING).write(batches(rows(20)), PLACE)
    with pytest.raises(KafkaError, match="PRODUCER_FENCED"):
        driver.end([late], is_commit=True)
    driver.end([heir], is_commit=True)
    wait_committed(cluster, values(rows(20)))


def test_a_task_that_cannot_be_aborted_any_more_keeps_no_other_open(cluster: Cluster) -> None:
    """Spark has all of a batch aborted if one of its commits fails."""
    cluster.broker.create_topic("t", 3)
    driver = sink(cluster, "t", **ALL_OR_NOTHING)
    places = [TaskIdentity("query", 0, task) for task in range(3)]
    written = [sink(cluster, "t", **ALL_OR_NOTHING).write(batches(rows(10)), place) for place in places]
    heir = sink(cluster, "t", **ALL_OR_NOTHING).write(batches(rows(20)), places[1])
    with pytest.raises(KafkaError, match="PRODUCER_FENCED"):
        driver.end(written, is_commit=True)
    with pytest.raises(KafkaError, match="INVALID_TXN_STATE"):
        driver.end(written, is_commit=False)
    driver.end([heir], is_commit=False)
    sink(cluster, "t").write(batches(rows(7)), PLACE)
    wait_committed(cluster, sorted(values(rows(10)) + values(rows(7))))


class StreamTask:
    """A task of the second micro-batch of a stream."""

    def getLocalProperty(self, name: str) -> str:  # noqa: N802 - Spark's name
        return {"streaming.sql.batchId": "1", "sql.streaming.queryId": "query"}[name]

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return 3


@pytest.mark.parametrize(
    ("told", "place"),
    [
        ({}, TaskIdentity("query", 1, 3)),
        ({"writeId": "w"}, TaskIdentity("w", 1, 3)),
        ({"writeId": "w", "writeBatch": "0"}, TaskIdentity("w", 0, 3)),
    ],
)
def test_batches_of_a_stream_are_counted_whatever_it_is_called(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, told: dict[str, str], place: TaskIdentity
) -> None:
    options = {**cluster.options(topic="t"), **told}
    parsed = parse_sink_options(options, SCHEMA, streaming=True)
    monkeypatch.setattr("barnabas.spark.sink.TaskContext.get", lambda: StreamTask())
    assert TaskIdentity.current(parsed) == place
