"""Handing the directories of a standalone broker to controllers that were formatted and never started."""

import os
from pathlib import Path

import pytest

from barnabas.common.uuid_text import uuid_text
from barnabas.protocol.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    KRaftVersionRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    TopicRecord,
    encode_metadata_record,
)
from barnabas.server.kraft.bootstrap_checkpoint import BootstrapCheckpoint
from barnabas.server.kraft.kraft_handover import HandoverError, hand_over
from barnabas.server.raft.snapshot_batches import SnapshotBatches
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
