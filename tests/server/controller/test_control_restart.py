"""Topics across restarts of a whole broker: kept by the store, and found again in log directories without one."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.common.uuid_text import uuid_text
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.record_batch_builder import RecordBatchBuilder
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.metadata.metadata_cache import TopicImage
from barnabas.server.metadata.znodes import DELETE_TOPICS
from barnabas.server.replication.append_request import AppendRequest
from barnabas.storage.log_validator import CLIENT_RULES
from barnabas.testing.broker import Broker


def forget_metadata(data_dir: Path) -> None:
    """Leaves the log directory as another broker would: without our store."""
    for path in data_dir.glob("metadata.sqlite*"):
        path.unlink()


def image(broker: Broker, name: str) -> TopicImage:
    found = broker.server.state.metadata.topic(name)
    assert found is not None
    return found


def epochs(broker: Broker, name: str) -> list[int]:
    """Leader epochs as clients see them; the replicas must have taken them over."""
    manager = broker.server.state.replica_manager
    shown = [partition.leader_epoch for partition in image(broker, name).partitions.values()]
    assert shown == [manager.get_leader_partition(name, index).leader_epoch for index in image(broker, name).partitions]
    return shown


def append_a_record(broker: Broker, topic: str, index: int) -> None:
    builder = RecordBatchBuilder()
    builder.append(b"k", b"v", timestamp=1_700_000_000_000)
    partition = broker.server.state.replica_manager.get_leader_partition(topic, index)
    partition.append_records_to_leader(memoryview(bytearray(builder.build())), AppendRequest(1, 0, print, CLIENT_RULES))


async def test_store_keeps_topics_ids_and_cluster_and_raises_epochs(tmp_path: Path) -> None:
    async with Broker(topics={"t": 2}, data_dir=tmp_path) as broker:
        first, state = image(broker, "t"), broker.server.state
        cluster_id, broker_epoch = state.cluster_id, state.broker_epoch
        assert epochs(broker, "t") == [0, 0]
    async with Broker(data_dir=tmp_path) as broker:
        assert image(broker, "t").topic_id == first.topic_id
        assert broker.server.state.cluster_id == cluster_id
        assert broker.server.state.broker_epoch > broker_epoch
        assert epochs(broker, "t") == [1, 1]


async def test_log_directory_without_a_store_is_adopted_as_it_is(tmp_path: Path) -> None:
    async with Broker(topics={"t": 3, "u": 1}, data_dir=tmp_path) as broker:
        ids = {name: image(broker, name).topic_id for name in ("t", "u")}
        cluster_id = broker.server.state.cluster_id
        append_a_record(broker, "t", 2)
    forget_metadata(tmp_path)
    shutil.rmtree(tmp_path / "t-1")
    (tmp_path / "u-0" / "partition.metadata").unlink()
    async with Broker(data_dir=tmp_path) as broker:
        assert broker.server.state.cluster_id == cluster_id
        assert image(broker, "t").topic_id == ids["t"]
        assert list(image(broker, "t").partitions) == [0, 1, 2]
        # One above the epoch in which a record was written; the others have seen none.
        assert epochs(broker, "t") == [0, 0, 1]
        fresh = image(broker, "u").topic_id
        assert fresh not in (UUID(int=0), ids["u"])
        assert uuid_text(fresh) in (tmp_path / "u-0" / "partition.metadata").read_text()


async def test_deleted_topic_is_gone_from_disk_and_store_and_stays_gone(tmp_path: Path) -> None:
    async with Broker(topics={"t": 2, "u": 1}, data_dir=tmp_path) as broker:
        await broker.adelete_topic("t")
        assert not (tmp_path / "t-0").exists()
        assert not (tmp_path / "t-1").exists()
        with pytest.raises(KafkaError) as refused:
            broker.server.state.replica_manager.get_leader_partition("t", 0)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    async with Broker(data_dir=tmp_path) as broker:
        assert list(broker.server.state.metadata.topic_names) == ["u"]


async def test_deletion_cut_short_by_a_kill_is_finished_at_the_next_start(tmp_path: Path) -> None:
    async with Broker(topics={"t": 1, "u": 1}, data_dir=tmp_path) as broker:
        store = broker.server.state.store
        await store.create("/admin/delete_topics/t")
    async with Broker(data_dir=tmp_path) as broker:
        assert list(broker.server.state.metadata.topic_names) == ["u"]
        assert not (tmp_path / "t-0").exists()
        assert await broker.server.state.store.children(DELETE_TOPICS) == []
        await broker.acreate_topic("t")
        assert epochs(broker, "t") == [0]


async def test_two_brokers_cannot_share_a_folder(tmp_path: Path) -> None:
    async with Broker(topics=["t"], data_dir=tmp_path) as first:
        with pytest.raises(BlockingIOError):
            await Broker(data_dir=tmp_path).__aenter__()
        assert first.server.state.replica_manager.get_partition("t", 0) is not None


async def test_topic_settings_are_in_force_before_its_first_log_and_after_a_restart(tmp_path: Path) -> None:
    async with Broker(data_dir=tmp_path) as broker:
        await broker.acreate_topic("t", 1, {"segment.bytes": "1048577", "cleanup.policy": "compact"})
        log = broker.server.state.log_manager.logs[TopicPartition("t", 0)]
        assert log.config.segment_bytes == 1_048_577
    async with Broker(data_dir=tmp_path) as broker:
        log = broker.server.state.log_manager.logs[TopicPartition("t", 0)]
        assert log.config.segment_bytes == 1_048_577
        assert "compact" in log.config.cleanup_policy
