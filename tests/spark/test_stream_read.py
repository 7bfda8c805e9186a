"""A streaming source's offsets, asked for in the order in which Spark asks, without Spark."""

import json
from typing import Any
from uuid import UUID

import pytest
from tests.spark.conftest import Cluster, Row

from barnabas.arrow.data_loss import DataLossError
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.protocol.special_timestamps import LATEST
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark import host, stream_reader
from barnabas.spark.offsets import StreamOffsets
from barnabas.spark.source import BarnabasSource

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


def first_batch(stream: Any) -> dict[str, Any]:
    """The end of the batch that Spark plans for a query without a checkpoint."""
    return dict(stream.latestOffset(stream.initialOffset(), None))


def test_latest_is_resolved_once_per_query(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 1)
    cluster.produce("t", numbered(5))
    stream = reader(cluster)
    assert first_batch(stream)["#starts"] == {"t": {"0": 5}}
    cluster.produce("t", numbered(5))
    again = first_batch(stream)
    assert again["#starts"] == {"t": {"0": 5}} and again["t"] == {"0": 10}
    stream.stop()


def add_partitions(cluster: Cluster, topic: str, count: int) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for future in admin.create_partitions([NewPartitions(topic, count)]).values():
        future.result(30)


def delete_records(cluster: Cluster, partition: int, offset: int) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for future in admin.delete_records([TopicPartition("t", partition, offset)]).values():
        future.result(30)


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"startingOffsets": "latest"}, 10),
        ({"startingOffsets": "earliest"}, 0),
        ({"startingOffsets": '{"t":{"0":4}}'}, 4),
        ({"startingTimestamp": "1006"}, 6),
        ({"startingOffsetsByTimestamp": '{"t":{"0":1007}}'}, 7),
    ],
)
def test_a_first_batch_that_runs_again_begins_where_it_began(
    cluster: Cluster, options: dict[str, str], first: int, fails: str
) -> None:
    """Whatever was produced and whichever partitions were added between the failure and the restart."""
    cluster.broker.create_topic("t", 1)
    cluster.produce("t", [{**row, "timestamp": 1000 + i} for i, row in enumerate(numbered(10))])
    stream = reader(cluster, failOnDataLoss=fails, **options)
    begin = stream.initialOffset()
    if first == 10:
        stream.latestOffset(begin, None)
        cluster.produce("t", numbered(5, 10))
    end = json.loads(json.dumps(stream.latestOffset(begin, None)))
    stream.stop()
    cluster.produce("t", numbered(10, 15))
    add_partitions(cluster, "t", 2)
    again = reader(cluster, failOnDataLoss=fails, **options)
    rows = batch(again, again.initialOffset(), end)
    assert sorted(row["offset"] for row in rows) == list(range(first, 15 if first == 10 else 10))
    then = again.latestOffset(end, None)
    assert min(row["offset"] for row in batch(again, end, then)) == end["t"]["0"]
    assert then["#starts"] == {"t": {"1": 0}}
    again.stop()


def test_a_first_batch_that_runs_again_keeps_the_topics_of_its_pattern(cluster: Cluster) -> None:
    cluster.broker.create_topic("ta", 1)
    source = BarnabasSource(cluster.options(subscribePattern="t.", **FROM_START))
    cluster.produce("ta", numbered(3))
    stream = source.streamReader(source.schema())
    end = first_batch(stream)
    stream.stop()
    cluster.broker.create_topic("tb", 1)
    cluster.produce("tb", numbered(4))
    again = source.streamReader(source.schema())
    assert len(batch(again, again.initialOffset(), end)) == 3
    assert {row["topic"] for row in batch(again, end, again.latestOffset(end, None))} == {"tb"}
    again.stop()


@pytest.mark.parametrize("fails", ["true", "false"])
def test_records_deleted_before_a_first_batch_runs_again_are_data_loss(cluster: Cluster, fails: str) -> None:
    cluster.broker.create_topic("t", 1)
    cluster.produce("t", numbered(10))
    stream = reader(cluster, **FROM_START)
    end = first_batch(stream)
    stream.stop()
    delete_records(cluster, 0, 6)
    again = reader(cluster, failOnDataLoss=fails, **FROM_START)
    if fails == "true":
        with pytest.raises(DataLossError, match="offsets 0 to 5 are missing"):
            batch(again, again.initialOffset(), end)
    else:
        assert [row["offset"] for row in batch(again, again.initialOffset(), end)] == [6, 7, 8, 9]
    again.stop()


def test_new_partitions_begin_where_the_batch_that_has_them_began(cluster: Cluster) -> None:
    """Also when that batch runs again, and records were deleted since: their loss is reported, not passed over."""
    cluster.broker.create_topic("t", 1)
    stream = reader(cluster)
    end = first_batch(stream)
    add_partitions(cluster, "t", 2)
    cluster.produce("t", [{**row, "partition": 1} for row in numbered(10)])
    then = stream.latestOffset(end, None)
    delete_records(cluster, 1, 4)
    with pytest.raises(DataLossError, match="t-1: offsets 0 to 3 are missing"):
        batch(stream, end, then)
    stream.stop()


def test_a_checkpoint_without_starts_is_read_by_the_options(cluster: Cluster) -> None:
    """As one of Spark's connector whose first batch did not finish."""
    cluster.broker.create_topic("t", 2)
    cluster.produce("t", [{**row, "partition": 0} for row in numbered(10)])
    stream = reader(cluster, **FROM_START)
    assert len(batch(stream, stream.initialOffset(), {"t": {"0": 7}})) == 7
    stream.stop()


def test_available_now_from_the_latest_offset_of_a_busy_topic(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 1)
    cluster.produce("t", numbered(5))
    stream = reader(cluster)
    stream.freeze()
    cluster.produce("t", numbered(5))
    begin = stream.initialOffset()
    end = stream.latestOffset(begin, None)
    assert batch(stream, begin, end) == []
    assert stream.latestOffset(end, None) == end
    then = reader(cluster)
    assert [row["offset"] for row in batch(then, end, then.latestOffset(end, None))] == list(range(end["t"]["0"], 10))
    stream.stop()
    then.stop()


def test_a_source_that_is_up_to_date_waits_for_records(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 2)
    stream = reader(cluster, maxWait="20ms")
    start = first_batch(stream)
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
    first_batch(stream)
    connection = stream._client.connection(*stream._client.by_leader([TopicPartition("t", 0)]))
    ask = connection.ask

    def refused(request: Any, *arguments: Any) -> Any:
        if isinstance(request, DescribeLogDirsRequest):
            return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return ask(request, *arguments)

    monkeypatch.setattr(connection, "ask", refused)
    assert len(batch(stream, start, stream.latestOffset(start, None))) == 100
    stream.latestOffset(start, None)
    assert caplog.text.count("maxBytesPerTrigger has no effect") == 1
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
    cluster.broker.create_topic("t", 1)
    cluster.produce("t", numbered(3))
    stream = reader(cluster)
    start = first_batch(stream)
    add_partitions(cluster, "t", 2)
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
        end = stream.latestOffset(start, None)
        assert list(end) == ["u", "#ids", "#missing"] and end["#missing"] == {"t": {"0": 5}}
        began = host.monotonic()
        assert stream.latestOffset(end, None) == end and host.monotonic() - began < 2, "it is waited for once"
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
        assert first_batch(stream)["#starts"]["t"] == {"0": 0}
        got = []
        while (end := stream.latestOffset(start, None)) != start:
            got += [int(row["value"]) for row in batch(stream, start, end)]
            start = end
        assert got == [*range(10, 20), *range(30, 40)]
        assert end["t"] == {"0": 41}
        stream.stop()


@pytest.mark.parametrize("recreated", [False, True])
@pytest.mark.parametrize("batches", [1, 3])
def test_a_topic_that_brokers_do_not_list_for_a_while_is_resumed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, batches: int, recreated: bool
) -> None:
    """Where it was left, by a restarted query too; a topic of the same name with another id is read from its start."""
    monkeypatch.setattr(stream_reader, "SURELY_GONE_S", 0.0)
    cluster.broker.create_topic("t", 1)
    cluster.broker.create_topic("u", 1)
    cluster.produce("t", numbered(10))
    source = BarnabasSource(cluster.options("t,u", failOnDataLoss="false", **FROM_START))
    stream = source.streamReader(source.schema())
    start, _ = drain(stream, stream.initialOffset())
    with monkeypatch.context() as patch:
        patch.setattr(stream_reader, "discover", lambda *_, **__: [TopicPartition("u", 0)])
        for _ in range(batches):
            cluster.produce("u", numbered(1))
            start, sizes = drain(stream, start)
            assert sizes[-1:] == [1]
        stream.stop()
        stream = source.streamReader(source.schema())
    if recreated:
        cluster.broker.delete_topic("t")
        cluster.broker.create_topic("t", 1)
    cluster.produce("t", numbered(5, 10))
    end = stream.latestOffset(start, None)
    assert "#missing" not in end
    assert [int(row["value"]) for row in batch(stream, start, end)] == [10, 11, 12, 13, 14]
    assert next(row["offset"] for row in batch(stream, start, end)) == (0 if recreated else 10)
    stream.stop()


def test_a_missing_topic_that_is_created_again_is_data_loss(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_reader, "SURELY_GONE_S", 0.0)
    cluster.broker.create_topic("t", 1)
    cluster.produce("t", numbered(10))
    stream = reader(cluster, failOnDataLoss="false", **FROM_START)
    start, _ = drain(stream, stream.initialOffset())
    cluster.broker.delete_topic("t")
    start = stream.latestOffset(start, None)
    stream.stop()
    cluster.broker.create_topic("t", 1)
    strict = reader(cluster, **FROM_START)
    with pytest.raises(DataLossError, match="created again"):
        strict.latestOffset(start, None)
    strict.stop()


def test_a_commit_to_a_group_that_fails_does_not_end_the_query(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: Any) -> None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "commit of group 'lag'")

    monkeypatch.setattr(stream_reader, "commit_offsets", refused)
    stream = reader(cluster, commitGroupId="lag")
    stream.commit({"t": {"0": 7}})
    assert "cannot commit the lag of group lag" in caplog.text


def test_connector_checkpoints_and_earlier_ones_are_read() -> None:
    topic_id = UUID(int=7)
    assert StreamOffsets.of_json({"t": {"0": 3}}) == StreamOffsets({TopicPartition("t", 0): 3})
    earlier = {"t": {"0": 3}, "#ids": {"t": str(topic_id)}}
    assert StreamOffsets.of_json(earlier) == StreamOffsets({TopicPartition("t", 0): 3}, {"t": topic_id})
    assert StreamOffsets.of_json(earlier).to_json() == earlier
