"""What many partitions cost together: syncs of the disk, when they are made, deleted, and found after a kill."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.waiting import until

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.broker import BrokerServer
from barnabas.server.cleaning.cleaning_work import cleaning_work
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.controller.admin_manager import PARTITIONS_PER_TURN, AdminManager, TopicCreation, TopicPlan
from barnabas.server.controller.controller_context import ControllerContext
from barnabas.server.controller.partition_state_machine import ORDERS_PER_TURN
from barnabas.server.metadata.embedded_store import EmbeddedStore
from barnabas.server.metadata.metadata_store import Operation, OperationResult
from barnabas.server.metadata.topic_store import DELETIONS_PER_WRITE
from barnabas.server.runtime.host import host_ports
from barnabas.storage.filesystem import OsFile, OsFileSystem

PARTITIONS = 300
FEW_SYNCS = 40
"""Far fewer than partitions: some for each write of a checkpoint, and for each directory."""

syncs: Counter[str] = Counter()


class CountedFile(OsFile):
    def fsync(self) -> None:
        syncs["fsync"] += 1

    def fdatasync(self) -> None:
        syncs["fdatasync"] += 1


class CountingFileSystem(OsFileSystem):
    file_class = CountedFile

    def __init__(self, *, syncs_disk: bool = True) -> None:
        super().__init__()
        self._syncs_disk = syncs_disk

    def fsync_dir(self, path: str) -> None:
        syncs["fsync_dir"] += 1

    def sync_disk(self, path: str) -> bool:
        syncs["sync_disk"] += self._syncs_disk
        return self._syncs_disk


@asynccontextmanager
async def broker_on(
    folder: Path, *, is_killed: bool = False, syncs_disk: bool = True, **settings: str
) -> AsyncIterator[BrokerServer]:
    loop = asyncio.get_running_loop()
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder)}
    properties |= {key.replace("_", "."): value for key, value in settings.items()}
    ports = dataclasses.replace(
        host_ports(loop, cleaning_work("thread", loop)), filesystem=CountingFileSystem(syncs_disk=syncs_disk)
    )
    server = BrokerServer(BrokerConfig.from_properties(properties), ports, loop)
    syncs.clear()
    try:
        await server.start()
        yield server
    finally:
        await server.stop()
        if is_killed:
            (folder / ".kafka_cleanshutdown").unlink()


async def create(server: BrokerServer) -> None:
    wishes = [TopicCreation(f"t{number}", PARTITIONS // 3, 1) for number in range(3)]
    await server.state.controller.create_topics(wishes)


async def test_many_partitions_are_created_with_few_syncs(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as server:
        syncs.clear()
        await create(server)
        assert syncs["sync_disk"] == 2
        assert syncs.total() < FEW_SYNCS
        assert {path.name for path in (tmp_path / "t0-0").iterdir()} == {f"{0:020d}.log", "partition.metadata"}


async def test_each_folder_is_synced_where_the_system_cannot_sync_a_disk(tmp_path: Path) -> None:
    async with broker_on(tmp_path, syncs_disk=False) as server:
        syncs.clear()
        await create(server)
        assert syncs["fsync"] >= PARTITIONS
        assert syncs["fsync_dir"] > PARTITIONS


async def test_few_folders_are_synced_by_themselves(tmp_path: Path) -> None:
    """What others have written to the same disk is not waited for."""
    async with broker_on(tmp_path) as server:
        syncs.clear()
        await server.create_topic("t", 3, {})
        assert not syncs["sync_disk"]
        assert syncs["fsync_dir"] >= 4


async def test_many_partitions_are_deleted_with_few_syncs(tmp_path: Path) -> None:
    async with broker_on(tmp_path, file_delete_delay_ms="0", log_segment_delete_delay_ms="0") as server:
        await create(server)
        syncs.clear()
        results = await server.state.controller.delete_topics([f"t{number}" for number in range(3)])
        assert results == {"t0": None, "t1": None, "t2": None}
        assert syncs.total() < FEW_SYNCS
        await until(lambda: not list(tmp_path.glob("t?-*")))
        assert syncs.total() < 2 * FEW_SYNCS


async def test_many_compacted_partitions_are_deleted_with_few_syncs(tmp_path: Path) -> None:
    """The cleaner forgets them together, too."""
    async with broker_on(tmp_path, log_cleanup_policy="compact") as server:
        await create(server)
        manager = server.state.log_manager.cleaner_manager
        held = [TopicPartition("t0", index) for index in range(PARTITIONS // 3)]
        manager.clean_offsets.update(dict.fromkeys(held, 0))
        syncs.clear()
        await server.state.controller.delete_topics(["t0"])
        assert syncs.total() < FEW_SYNCS


@pytest.mark.parametrize("times", [1, 2])
async def test_partitions_without_a_record_are_not_recovered_after_a_kill(tmp_path: Path, times: int) -> None:
    async with broker_on(tmp_path, is_killed=True) as server:
        await create(server)
    for _ in range(times):
        async with broker_on(tmp_path, is_killed=True) as server:
            assert not server.state.log_manager.dirs[0].was_clean_shutdown
            assert syncs.total() < FEW_SYNCS
            assert len(server.state.log_manager.logs) == PARTITIONS


async def test_partitions_whose_creation_a_kill_has_cut_short_are_created_together(tmp_path: Path) -> None:
    async with broker_on(tmp_path, is_killed=True) as server:
        await create(server)
    for folder in tmp_path.glob("t?-*"):
        shutil.rmtree(folder)
    async with broker_on(tmp_path) as server:
        assert syncs["sync_disk"] == 2
        assert syncs.total() < FEW_SYNCS
        assert len(server.state.log_manager.logs) == PARTITIONS
        assert all(partition.is_leader for partition in server.state.replica_manager.partitions)


async def test_the_nodes_of_many_partitions_are_deleted_in_several_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_on(tmp_path) as server:
        await server.create_topic("wide", 2 * PARTITIONS, {})
        sizes, multi = list[int](), EmbeddedStore.multi

        async def counted(store: EmbeddedStore, operations: Sequence[Operation]) -> list[OperationResult]:
            sizes.append(len(operations))
            return await multi(store, operations)

        monkeypatch.setattr(EmbeddedStore, "multi", counted)
        assert await server.state.controller.delete_topics(["wide"]) == {"wide": None}
        assert sum(sizes) > 4 * PARTITIONS
        assert max(sizes) <= DELETIONS_PER_WRITE + 1  # with the check of the controller epoch


async def test_few_partitions_are_planned_in_each_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with broker_on(tmp_path) as server:
        loop, turn = asyncio.get_running_loop(), 0
        planned, orders = Counter[int](), Counter[int]()
        plan_topic, reachable = AdminManager._plan_topic, ControllerContext.reachable_replicas

        def count_turns() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(count_turns)

        def counted_plan(manager: AdminManager, creation: TopicCreation) -> TopicPlan:
            plan = plan_topic(manager, creation)
            planned[turn] += len(plan.assignment)
            return plan

        def counted_order(context: ControllerContext, partition: TopicPartition) -> list[int]:
            orders[turn] += 1
            return reachable(context, partition)

        monkeypatch.setattr(AdminManager, "_plan_topic", counted_plan)
        monkeypatch.setattr(ControllerContext, "reachable_replicas", counted_order)
        count_turns()
        creations = [TopicCreation(f"t{number}", 40, 1) for number in range(10)]
        await server.state.controller.create_topics(creations)
        assert planned.total() == orders.total() == 400
        assert max(planned.values()) < PARTITIONS_PER_TURN + 40
        assert max(orders.values()) <= ORDERS_PER_TURN
