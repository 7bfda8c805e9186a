"""Handing the directories of a standalone broker to controllers that were formatted and never started."""

import asyncio
import os
from pathlib import Path

import pytest

from barnabas.clients.admin import Admin, ConfigChange, raise_first
from barnabas.common.uuid_text import uuid_text
from barnabas.protocol.config_resources import ConfigResource, ConfigResourceType
from barnabas.protocol.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    KRaftVersionRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    TopicRecord,
    encode_metadata_record,
)
from barnabas.server.kraft.bootstrap_checkpoint import BootstrapCheckpoint
from barnabas.server.kraft.kraft_handover import METADATA_STORE, HandoverError, hand_over
from barnabas.server.metadata.embedded_store import EmbeddedStore
from barnabas.server.metadata.znodes import PRODUCER_ID_BLOCK, encode_producer_id_block
from barnabas.server.raft.snapshot_batches import SnapshotBatches
from barnabas.server.runtime.host import ThreadWork
from barnabas.storage.filesystem import OsFileSystem
from barnabas.storage.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from barnabas.testing import Broker

SNAPSHOT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


@pytest.fixture
def standalone(tmp_path: Path) -> Path:
    """The log directory of a broker with a topic, which has stopped."""
    with Broker({"orders": 2}, data_dir=tmp_path / "broker"):
        pass
    return tmp_path / "broker"


class Controller:
    """The log directory of a formatted controller."""

    def __init__(self, folder: Path, standalone: Path) -> None:
        self.folder = folder
        (folder / "__cluster_metadata-0").mkdir(parents=True)
        found = read_meta_properties(OsFileSystem(), str(standalone))
        assert found is not None
        self.write_identity(found.cluster_id)
        self.write_checkpoint(SNAPSHOT, 33)

    def write_identity(self, cluster_id: str | None, node_id: int = 3000) -> None:
        write_meta_properties(OsFileSystem(), str(self.folder), MetaProperties(1, node_id, cluster_id, "A" * 22))

    def write_checkpoint(self, name: str, level: int) -> None:
        batches = SnapshotBatches(0, 7)
        header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=7)
        data = batches.control_batch([header, KRaftVersionRecord(version=0, kraft_version=1)])
        for feature, one in (("metadata.version", level), ("share.version", 1)):
            batches.append(encode_metadata_record(FeatureLevelRecord(name=feature, feature_level=one), 0))
        data += batches.rest() or b""
        (self.folder / name).write_bytes(data + batches.control_batch([SnapshotFooterRecord(version=0)]))

    def records(self) -> list[object]:
        return BootstrapCheckpoint(OsFileSystem(), str(self.folder)).records


@pytest.mark.parametrize("name", [SNAPSHOT, "bootstrap.checkpoint"])
async def test_the_controllers_begin_with_the_topics_of_the_broker(tmp_path: Path, standalone: Path, name: str) -> None:
    controllers = [Controller(tmp_path / str(number), standalone) for number in (1, 2)]
    for controller in controllers:
        controller.write_checkpoint(name, 33)
    handover = await hand_over([str(standalone)], [str(one.folder) for one in controllers], os.urandom)
    assert handover.topics == 1
    assert handover.checkpoints == [str(one.folder / name) for one in controllers]
    first, second = (one.records() for one in controllers)
    assert first == second
    identity = read_meta_properties(OsFileSystem(), str(standalone))
    assert identity is not None
    levels = {one.name: one.feature_level for one in first if isinstance(one, FeatureLevelRecord)}
    assert levels == {"metadata.version": 33, "share.version": 1}
    (registration,) = (one for one in first if isinstance(one, RegisterBrokerRecord))
    assert registration.fenced
    assert registration.broker_epoch >= 0  # of the clean stop
    assert list(map(uuid_text, registration.log_dirs)) == [identity.directory_id]
    (topic,) = (one for one in first if isinstance(one, TopicRecord))
    partitions = [one for one in first if isinstance(one, PartitionRecord)]
    assert [(one.partition_id, one.topic_id, one.leader) for one in partitions] == [
        (0, topic.topic_id, -1),
        (1, topic.topic_id, -1),
    ]
    for one in partitions:
        assert one.replicas == one.isr == [identity.node_id]
        assert list(map(uuid_text, one.directories)) == [identity.directory_id]
    assert not [one for one in first if isinstance(one, ConfigRecord) and one.resource_name != "orders"]
    # The control records of the format remain.
    data = (controllers[0].folder / name).read_bytes()
    with pytest.raises(HandoverError, match="Format a new directory"):
        await hand_over([str(standalone)], [str(controllers[0].folder)], os.urandom)
    assert (controllers[0].folder / name).read_bytes() == data


async def test_settings_that_kafka_does_not_accept_are_changed(tmp_path: Path) -> None:
    former = {
        "message.format.version": "0.11.0",
        "message.downconversion.enable": "false",
        "message.timestamp.difference.max.ms": "5000",
        "message.timestamp.after.max.ms": "7000",
        "segment.bytes": "65536",
        "retention.ms": "1000",
    }
    with Broker({"orders": 1}, data_dir=tmp_path / "broker") as broker:
        async with Admin(broker.bootstrap) as admin:
            changes = [ConfigChange(*one) for one in former.items()]
            raise_first(await admin.alter_configs({ConfigResource(ConfigResourceType.TOPIC, "orders"): changes}))
    controller = Controller(tmp_path / "controller", tmp_path / "broker")
    handover = await hand_over([str(tmp_path / "broker")], [str(controller.folder)], os.urandom)
    assert sorted(handover.changed_settings) == [
        "orders: message.downconversion.enable=false removed",
        "orders: message.format.version=0.11.0 removed",
        "orders: message.timestamp.difference.max.ms=5000 changed to "
        "message.timestamp.before.max.ms and message.timestamp.after.max.ms",
        "orders: segment.bytes=65536 changed to 1048576",
    ]
    settings = {one.name: one.value for one in controller.records() if isinstance(one, ConfigRecord)}
    assert settings == {
        "message.timestamp.before.max.ms": "5000",
        "message.timestamp.after.max.ms": "7000",
        "segment.bytes": "1048576",
        "retention.ms": "1000",
    }


async def test_the_last_producer_ids_are_handed_over(tmp_path: Path, standalone: Path) -> None:
    work = ThreadWork(asyncio.get_running_loop())
    store = EmbeddedStore.open(str(standalone / METADATA_STORE), now_ms=lambda: 0, work=work)
    block = encode_producer_id_block(0, 2**63 - 1000, 2**63 - 1)
    if await store.exists(PRODUCER_ID_BLOCK) is None:
        await store.create(PRODUCER_ID_BLOCK)
    await store.set(PRODUCER_ID_BLOCK, block)
    await store.close()
    work.close()
    controller = Controller(tmp_path / "controller", standalone)
    await hand_over([str(standalone)], [str(controller.folder)], os.urandom)
    (record,) = (one for one in controller.records() if isinstance(one, ProducerIdsRecord))
    assert record.next_producer_id == 2**63 - 1


async def test_directories_that_cannot_be_handed_over_are_refused_unchanged(tmp_path: Path, standalone: Path) -> None:
    controller = Controller(tmp_path / "controller", standalone)
    before = (controller.folder / SNAPSHOT).read_bytes()
    cluster_id = str(getattr(read_meta_properties(OsFileSystem(), str(standalone)), "cluster_id", None))

    async def refusal(*log_dirs: Path) -> str:
        with pytest.raises(HandoverError) as error:
            await hand_over([str(one) for one in log_dirs], [str(controller.folder)], os.urandom)
        assert (controller.folder / SNAPSHOT).read_bytes() == before
        return str(error.value)

    assert "no meta.properties" in await refusal(tmp_path)
    controller.write_identity("other")
    assert f"Format it with --cluster-id {cluster_id}" in await refusal(standalone)
    broker_id = getattr(read_meta_properties(OsFileSystem(), str(standalone)), "node_id", None)
    controller.write_identity(cluster_id, broker_id)
    assert "is the id of the broker" in await refusal(standalone)
    controller.write_identity(cluster_id)
    with Broker(data_dir=standalone):
        assert "metadata.sqlite" in await refusal(standalone)
    segment = controller.folder / "__cluster_metadata-0" / "00000000000000000000.log"
    segment.write_bytes(b"x")
    assert "the controller was started" in await refusal(standalone)
    segment.unlink()
    controller.write_checkpoint(SNAPSHOT, 21)
    before = (controller.folder / SNAPSHOT).read_bytes()
    assert "metadata.version 21" in await refusal(standalone)
    before = before[:-1] + b"\0\0"
    (controller.folder / SNAPSHOT).write_bytes(before)
    assert SNAPSHOT in await refusal(standalone)
