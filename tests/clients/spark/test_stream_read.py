"""A streaming source's offsets, asked for in the order in which Spark asks, without Spark."""

import json
from typing import Any

import pytest
from tests.clients.spark.conftest import Cluster, Row

from barnabas.clients.spark.loss import DataLossError
from barnabas.clients.spark.source import BarnabasSource
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.protocol.special_timestamps import LATEST
from barnabas.protocol.topic_partition import TopicPartition

FROM_START = {"startingOffsets": "earliest"}


def reader(cluster: Cluster, **options: str) -> Any:
    source = BarnabasSource(cluster.options("t", **options))
    return source.streamReader(source.schema())


def batch(stream: Any, start: dict[str, Any], end: dict[str, Any]) -> list[Row]:
    return [row for part in stream.partitions(start, end) for b in stream.read(part) for row in b.to_pylist()]


def numbered(count: int, first: int = 0) -> list[Row]:
    return [{"key": b"k%d" % i, "value": b"%d" % i} for i in range(first, first + count)]


def drain(stream: Any, start: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Batch after batch until nothing is left; where it ended, and how many rows each had."""
    sizes = []
    while (end := stream.latestOffset(start, None)) != start:
        sizes.append(len(batch(stream, start, end)))
        stream.commit(end)
        start = json.loads(json.dumps(end))
    return start, sizes


def test_batch_after_batch(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 3)
    cluster.produce("t", numbered(1000))
    stream = reader(cluster, maxOffsetsPerTrigger="300", **FROM_START)
    start, sizes = drain(stream, stream.initialOffset())
    assert sum(sizes) == 1000 and max(sizes) <= 300
    cluster.produce("t", numbered(50, 1000))
    again = reader(cluster, **FROM_START)
    end = again.latestOffset(start, None)
    assert sorted(int(row["value"]) for row in batch(again, start, end)) == list(range(1000, 1050))
    assert again.reportLatestOffset() == end
    stream.stop()
    again.stop()


def test_latest_is_settled_once(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 1)
    cluster.produce("t", numbered(5))
    stream = reader(cluster)
    first = stream.initialOffset()
    cluster.produce("t", numbered(5))
    assert stream.initialOffset() == first and first["t"] == {"0": 5}
    stream.stop()


def test_a_source_that_is_up_to_date_waits_for_records(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 2)
    stream = reader(cluster, maxWait="20ms")
    start = stream.initialOffset()
    assert stream.latestOffset(start, None) == start
    patient = reader(cluster, maxWait="60s")
    import threading

    later = threading.Timer(0.3, lambda: cluster.produce("t", numbered(1)))
    later.start()
    assert patient.latestOffset(start, None) != start
    later.join()
    stream.stop()
    patient.stop()


def test_bytes_bound_a_batch(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 1)
    cluster.produce("t", [{"value": b"x" * 1000} for _ in range(1000)])
    stream = reader(cluster, maxBytesPerTrigger="100000", **FROM_START)
    _, sizes = drain(stream, stream.initialOffset())
    assert sum(sizes) == 1000 and 80 <= sizes[0] <= 110
    stream.stop()


def test_bytes_that_brokers_do_not_tell_bound_nothing_and_it_is_said_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.broker.create_topic("t", 1)
    cluster.produce("t", numbered(100))
    stream = reader(cluster, maxBytesPerTrigger="10", **FROM_START)
    start = stream.initialOffset()
    connection = stream._client.connection(*stream._client.by_leader([TopicPartition("t", 0)]))
    ask = connection.ask

    def refused(request: Any, *arguments: Any) -> Any:
        if isinstance(request, DescribeLogDirsRequest):
            return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return ask(request, *arguments)

    monkeypatch.setattr(connection, "ask", refused)
    assert len(batch(stream, start, stream.latestOffset(start, None))) == 100
    stream.latestOffset(start, None)
    assert caplog.text.count("maxBytesPerTrigger bounds nothing") == 1
    stream.stop()


def test_too_few_records_wait_for_more(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 2)
    cluster.produce("t", numbered(5))
    stream = reader(cluster, minOffsetsPerTrigger="100", maxTriggerDelay="1h", maxWait="10ms", **FROM_START)
    start = stream.initialOffset()
    end = stream.latestOffset(start, None)
    assert len(batch(stream, start, end)) == 5, "the first batch goes at once"
    cluster.produce("t", numbered(99, 5))
    assert stream.latestOffset(end, None) == end
    cluster.produce("t", numbered(1, 104))
    assert len(batch(stream, end, stream.latestOffset(end, None))) == 100
    stream.stop()


def test_an_end_that_goes_back_is_looked_at_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who leads a partition no more, and does not know it yet, tells of an end before the last one."""
    cluster.broker.create_topic("t", 1)
    cluster.produce("t", numbered(100))
    stream = reader(cluster, **FROM_START)
    end = stream.latestOffset(stream.initialOffset(), None)
    assert len(batch(stream, stream.initialOffset(), end)) == 100
    cluster.produce("t", numbered(50))
    find, old = stream._client.find_offsets, [90, 90]
    monkeypatch.setattr(
        stream._client,
        "find_offsets",
        lambda asked: {tp: old.pop() for tp in asked} if old and LATEST in asked.values() else find(asked),
    )
    assert len(batch(stream, end, stream.latestOffset(end, None))) == 50
    stream.stop()


def test_available_now_stops_at_what_was_there(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 2)
    cluster.produce("t", numbered(100))
    stream = reader(cluster, maxOffsetsPerTrigger="30", **FROM_START)
    stream.freeze()
    start = stream.initialOffset()
    cluster.produce("t", numbered(100))
    _, sizes = drain(stream, start)
    assert sum(sizes) == 100 and len(sizes) >= 4
    stream.stop()


def test_offsets_go_to_a_group_on_request(cluster: Cluster) -> None:
    from confluent_kafka import Consumer, TopicPartition

    cluster.broker.create_topic("t", 1)
    cluster.produce("t", numbered(7))
    stream = reader(cluster, commitGroupId="lag", **FROM_START)
    drain(stream, stream.initialOffset())
    stream.stop()
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "lag", "log_level": 0})
    assert [tp.offset for tp in consumer.committed([TopicPartition("t", 0)], timeout=30)] == [7]
    consumer.close()


def test_new_partitions_start_at_their_first_record(cluster: Cluster) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    cluster.broker.create_topic("t", 1)
    cluster.produce("t", numbered(3))
    stream = reader(cluster)
    start = stream.initialOffset()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for future in admin.create_partitions([NewPartitions("t", 2)]).values():
        future.result(30)
    cluster.produce("t", [{"value": b"new", "partition": 1}])
    end = stream.latestOffset(start, None)
    assert [row["value"] for row in batch(stream, start, end)] == [b"new"]
    stream.stop()


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_created_again_is_data_loss(cluster: Cluster, fails: str) -> None:
    cluster.broker.create_topic("t", 1)
    cluster.produce("t", numbered(5))
    stream = reader(cluster, failOnDataLoss=fails, **FROM_START)
    start, _ = drain(stream, stream.initialOffset())
    cluster.broker.delete_topic("t")
    cluster.broker.create_topic("t", 1)
    cluster.produce("t", numbered(9, 100))
    if fails == "true":
        with pytest.raises(DataLossError, match="created again"):
            stream.latestOffset(start, None)
    else:
        end = stream.latestOffset(start, None)
        assert [int(row["value"]) for row in batch(stream, start, end)] == list(range(100, 109))
    stream.stop()


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_deleted_topic_is_data_loss(cluster: Cluster, fails: str) -> None:
    cluster.broker.create_topic("t", 1)
    cluster.broker.create_topic("u", 1)
    cluster.produce("t", numbered(5))
    source = BarnabasSource(cluster.options(subscribePattern="[tu]", failOnDataLoss=fails, **FROM_START))
    stream = source.streamReader(source.schema())
    start, _ = drain(stream, stream.initialOffset())
    cluster.broker.delete_topic("t")
    if fails == "true":
        with pytest.raises(DataLossError, match="t-0 was deleted"):
            stream.latestOffset(start, None)
    else:
        assert list(stream.latestOffset(start, None)) == ["u", "#ids"]
    stream.stop()


def test_gaps_of_compaction_and_markers_are_no_data_loss(cluster: Cluster, tmp_path: Any) -> None:
    """Offsets 0–9 and 20–29 are gone, and a transaction marker ends the log: all within the log, none lost."""
    from barnabas import Broker
    from barnabas.protocol.record_batch import ControlType, RecordBatchBuilder, control_batch

    folder = tmp_path / "t-0"
    folder.mkdir()
    parts = []
    for first in (10, 30):
        builder = RecordBatchBuilder(base_offset=first, producer_id=1, producer_epoch=0, base_sequence=first)
        for offset in range(first, first + 10):
            builder.append(b"k", b"%d" % offset, (), 1000, offset)
        parts.append(builder.build())
    parts.append(
        control_batch(
            ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=1000, base_offset=40
        )
    )
    (folder / f"{0:020}.log").write_bytes(b"".join(parts))
    with Broker(data_dir=tmp_path, config={"log.retention.ms": "-1"}) as broker:
        found = Cluster(broker)
        stream = reader(found, maxOffsetsPerTrigger="7", **FROM_START)
        start = stream.initialOffset()
        assert start["t"] == {"0": 0}
        got = []
        while (end := stream.latestOffset(start, None)) != start:
            got += [int(row["value"]) for row in batch(stream, start, end)]
            start = end
        assert got == [*range(10, 20), *range(30, 40)]
        assert end["t"] == {"0": 41}
        stream.stop()
