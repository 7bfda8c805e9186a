"""Filters that narrow a batch read, pushed as Spark pushes them."""

import datetime
from typing import Any

import pytest
from pyspark.sql import datasource
from tests.spark.conftest import Cluster, require_pyspark

from barnabas.spark.source import BarnabasSource

TIME = 1_700_000_000_000


@pytest.fixture
def topic(cluster: Cluster) -> Cluster:
    require_pyspark("4.1")
    for name in ("t", "u"):
        cluster.broker.create_topic(name, 2)
        rows = [{"value": b"%d" % i, "partition": i % 2, "timestamp": TIME + i} for i in range(200)]
        cluster.produce(name, rows)
    return cluster


def narrowed(cluster: Cluster, *filters: Any) -> tuple[list[tuple[str, int, int]], int]:
    """What is left to read, as (topic, partition, offset), and how many filters Spark still has to check."""
    source = BarnabasSource(cluster.options("t,u", pushdown="true"))
    reader = source.reader(source.schema())
    left = len(list(reader.pushFilters(list(filters))))
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    return [(row["topic"], row["partition"], row["offset"]) for row in rows], left


def test_offsets_partitions_and_topics(topic: Cluster) -> None:
    rows, left = narrowed(
        topic,
        datasource.EqualTo(("topic",), "t"),
        datasource.In(("partition",), (1, 7)),
        datasource.GreaterThan(("offset",), 10),
        datasource.LessThanOrEqual(("offset",), 13),
    )
    assert rows == [("t", 1, 11), ("t", 1, 12), ("t", 1, 13)] and left == 0
    rows, left = narrowed(topic, datasource.EqualTo(("offset",), 7), datasource.LessThan(("offset",), 7))
    assert rows == [] and left == 0


def test_a_time_is_where_to_begin_and_checked_again(topic: Cluster) -> None:
    time = datetime.datetime.fromtimestamp((TIME + 150) / 1000, datetime.UTC)
    rows, left = narrowed(topic, datasource.GreaterThanOrEqual(("timestamp",), time))
    assert len(rows) == 100 and min(offset for _, _, offset in rows) == 75
    assert left == 1


def test_what_cannot_be_used_is_given_back(topic: Cluster) -> None:
    rows, left = narrowed(
        topic,
        datasource.IsNotNull(("offset",)),
        datasource.EqualTo(("value",), b"1"),
        datasource.StringStartsWith(("topic",), "t"),
        datasource.LessThan(("timestamp",), datetime.datetime.now(datetime.UTC)),
    )
    assert len(rows) == 400 and left == 4
