"""The sources and the sink inside Spark: found, planned, run in workers, restarted from checkpoints."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import Cluster, Row, require_pyspark

from barnabas.spark.lag import LagListener

pytestmark = pytest.mark.timeout(280)


def numbered(count: int, first: int = 0) -> list[Row]:
    return [{"key": b"k%d" % (i % 100), "value": b"%d" % i} for i in range(first, first + count)]


def load(spark: Any, cluster: Cluster, topic: str, **options: str) -> Any:
    return spark.read.format("barnabas").options(**cluster.options(topic, **options)).load()


def stream(spark: Any, cluster: Cluster, topic: str, **options: str) -> Any:
    named = cluster.options(topic, startingOffsets="earliest", **options)
    return spark.readStream.format("barnabas").options(**named).load()


def numbers(frame: Any) -> list[int]:
    return sorted(int(row[0]) for row in frame.selectExpr("cast(value as string)").collect())


def test_it_is_found_and_read(spark: Any, cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 3)
    cluster.produce("t", numbered(5000))
    frame = load(spark, cluster, "t", minPartitions="6", includeHeaders="true")
    assert frame.rdd.getNumPartitions() >= 6
    assert numbers(frame) == list(range(5000))
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert frame.columns == names
    assert frame.groupBy("key").count().count() == 100
    assert frame.count() == 5000


def test_a_schema_given_by_the_user(spark: Any, cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 1)
    cluster.produce("t", [{"value": json.dumps({"a": i, "b": [i]})} for i in range(10)])
    frame = (
        spark.read.format("barnabas")
        .options(**cluster.options("t", valueFormat="json"))
        .schema("offset bigint, value struct<a: bigint, b: array<bigint>>")
        .load()
    )
    assert frame.selectExpr("sum(value.a)", "sum(value.b[0])", "max(offset)").collect() == [(45, 45, 9)]


def test_filters_narrow_the_read_on_request(spark: Any, cluster: Cluster) -> None:
    require_pyspark("4.1")
    cluster.broker.create_topic("t", 2)
    cluster.produce("t", numbered(1000))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = load(spark, cluster, "t", pushdown="true").where("partition = 1 and offset >= 100 and offset < 110")
        assert frame.count() == 10
        assert frame.rdd.getNumPartitions() == 1
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


def test_batch_writes(spark: Any, cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 2)
    frame = spark.range(0, 1000, 1, 4).selectExpr("cast(id as string) key", "cast(id as string) value", "'t' topic")
    for _ in range(2):
        frame.write.format("barnabas").mode("append").options(**cluster.options()).save()
    assert numbers(load(spark, cluster, "t")) == sorted([*range(1000)] * 2)


def run_to_end(query: Any) -> list[int]:
    assert query.awaitTermination(100)
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def test_available_now_with_a_rate_and_restarts(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    require_pyspark("4.2")
    cluster.broker.create_topic("t", 3)
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")

    def run() -> list[int]:
        frame = stream(spark, cluster, "t", maxOffsetsPerTrigger="400").selectExpr("value", "partition", "offset")
        writer = frame.writeStream.format("parquet").option("checkpointLocation", checkpoint).option("path", out)
        return run_to_end(writer.trigger(availableNow=True).start())

    cluster.produce("t", numbered(1000))
    sizes = run()
    assert sum(sizes) == 1000 and max(sizes) <= 400
    cluster.produce("t", numbered(500, 1000))
    assert sum(run()) == 500
    assert numbers(spark.read.parquet(out)) == list(range(1500))


def test_lag_is_committed_to_the_last_batch(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    from confluent_kafka import Consumer, TopicPartition

    require_pyspark("4.2")
    cluster.broker.create_topic("t", 1)
    cluster.produce("t", numbered(70))
    listener = LagListener(cluster.bootstrap, "shown")
    spark.streams.addListener(listener)
    try:
        writer = stream(spark, cluster, "t").writeStream.format("noop")
        query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        run_to_end(query)
        assert query.lastProgress.sources[0].latestOffset is not None
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(100_000)
    finally:
        spark.streams.removeListener(listener)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "shown", "log_level": 0})
    assert [tp.offset for tp in consumer.committed([TopicPartition("t", 0)], timeout=30)] == [70]
    consumer.close()


def forget_last_commit(checkpoint: Path) -> None:
    """Make Spark run its last batch again, as it does when it was killed before it noted the end."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    (commits / str(last)).unlink()
    for crc in commits.glob(f".{last}.crc"):
        crc.unlink()


@pytest.mark.parametrize(
    ("delivery", "name"),
    [
        ("at-least-once", {}),
        ("exactly-once", {}),
        pytest.param("exactly-once", {"writeId": "w"}, marks=pytest.mark.verify),
        pytest.param("transactional", {}, marks=pytest.mark.verify),
        pytest.param("transactional", {"writeId": "w"}, marks=pytest.mark.verify),
    ],
)
def test_a_batch_that_is_run_again(
    spark: Any, cluster: Cluster, tmp_path: Path, delivery: str, name: dict[str, str]
) -> None:
    require_pyspark("4.2")
    cluster.broker.create_topic("t", 3)
    cluster.broker.create_topic("out", 2)
    cluster.produce("t", numbered(900))

    def run() -> None:
        frame = stream(spark, cluster, "t", maxOffsetsPerTrigger="300").select("key", "value")
        writer = frame.writeStream.format("barnabas").options(**cluster.options(topic="out", delivery=delivery, **name))
        run_to_end(writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start())

    run()
    assert numbers(load(spark, cluster, "out")) == list(range(900))
    forget_last_commit(tmp_path)
    run()
    found = numbers(load(spark, cluster, "out"))
    if delivery != "at-least-once":
        assert found == list(range(900))
    else:
        assert len(found) > 900 and sorted(set(found)) == list(range(900))


def test_segments_are_read(spark: Any, tmp_path: Path) -> None:
    from barnabas import Broker

    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("t", 2)
        Cluster(broker).produce("t", numbered(3000))
    frame = spark.read.format("barnabas-log").option("topics", "t").load(str(tmp_path))
    assert numbers(frame) == list(range(3000))
    assert frame.where("crcValid and error is null and codec = 'uncompressed'").count() == 3000


@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_a_query_that_failed_in_its_first_batch_begins_where_it_began(
    spark: Any, cluster: Cluster, tmp_path: Path, start: str
) -> None:
    """Though records and a partition were added between the failure and the restart."""
    require_pyspark("4.2")
    from confluent_kafka.admin import AdminClient, NewPartitions

    cluster.broker.create_topic("t", 1)
    cluster.produce("t", numbered(100))
    rows: list[tuple[int, int]] = []

    def run(*, fails: bool) -> Any:
        def write(frame: Any, batch_id: int) -> None:
            if fails:
                raise RuntimeError("the first batch fails")
            rows.extend((row.partition, row.offset) for row in frame.select("partition", "offset").collect())

        options = cluster.options("t", startingOffsets=start)
        writer = spark.readStream.format("barnabas").options(**options).load().writeStream.foreachBatch(write)
        return writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()

    with pytest.raises(Exception, match="the first batch fails"):
        run(fails=True).awaitTermination(100)
    cluster.produce("t", numbered(100))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for future in admin.create_partitions([NewPartitions("t", 2)]).values():
        future.result(30)
    cluster.produce("t", [{**row, "partition": 1} for row in numbered(10)])
    assert run(fails=False).awaitTermination(100)
    first = 100 if start == "latest" else 0
    assert sorted(rows) == [*((0, offset) for offset in range(first, 200)), *((1, offset) for offset in range(10))]
