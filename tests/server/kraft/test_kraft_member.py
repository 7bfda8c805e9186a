"""A whole broker in a KRaft cluster whose controllers are scripted."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.server.raft.scripted_quorum import CLUSTER_ID, ScriptedQuorum

from barnabas.protocol import metadata_records as r
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.metadata_records import encode_metadata_record
from barnabas.server.broker import BrokerServer
from barnabas.server.cleaning.worker_pool import WorkerPool
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.kraft import kraft_member
from barnabas.server.raft.kafka_raft_log import METADATA_DIRECTORY
from barnabas.server.runtime.host import host_ports
from barnabas.storage.errors import StorageError

BROKER_ID, BROKER_EPOCH = 7, 5
TOPIC_ID = UUID(int=1000 << 64)
FORMER_DIRECTORY = UUID(int=2000 << 64)
DEADLINE_S = 60


class Controllers:
    """The controllers of a quorum that writes no record without a change (`metadata.max.idle.interval.ms=0`)."""

    def __init__(self) -> None:
        self.quorum = ScriptedQuorum()
        self.quorum.elect(1)
        self.requests: list[Any] = []
        self.on_registration: Callable[[], None] = lambda: None

    def append(self, *records: Any) -> None:
        self.quorum.append(*map(encode_metadata_record, records))

    def requests_of(self, kind: type) -> list[Any]:
        return [one for one in self.requests if type(one) is kind]

    # `ControllerConnections`

    def __call__(self, *_: Any, **__: Any) -> Controllers:
        return self

    async def version_for(self, *_: Any, **__: Any) -> int:
        return 4

    async def send_request(self, endpoint: tuple[str, int], request: Any, *, lowest: int = 0, highest: int = 0) -> Any:
        self.requests.append(request)
        match request:
            case DescribeClusterRequest():
                return DescribeClusterResponse(cluster_id=CLUSTER_ID)
            case BrokerRegistrationRequest():
                self.on_registration()
                return BrokerRegistrationResponse(broker_epoch=BROKER_EPOCH)
            case BrokerHeartbeatRequest():
                return BrokerHeartbeatResponse(
                    is_caught_up=True, is_fenced=request.want_fence, should_shut_down=request.want_shut_down
                )
            case AssignReplicasToDirsRequest():
                return AssignReplicasToDirsResponse(directories=[])
        return await self.quorum.send_request(endpoint, request, lowest=lowest)

    def disconnect(self, endpoint: tuple[str, int]) -> None:
        pass

    def close(self) -> None:
        pass


def partition(index: int) -> r.PartitionRecord:
    return r.PartitionRecord(
        partition_id=index,
        topic_id=TOPIC_ID,
        replicas=[BROKER_ID],
        isr=[BROKER_ID],
        leader=BROKER_ID,
        leader_epoch=0,
        partition_epoch=0,
        directories=[FORMER_DIRECTORY],
    )


@pytest.fixture
def controllers(monkeypatch: pytest.MonkeyPatch) -> Controllers:
    result = Controllers()
    monkeypatch.setattr(kraft_member, "ControllerConnections", result)
    result.append(
        r.FeatureLevelRecord(name="metadata.version", feature_level=33),
        r.TopicRecord(name="t", topic_id=TOPIC_ID),
        partition(0),
    )
    return result


@asynccontextmanager
async def broker(*folders: Path) -> AsyncIterator[BrokerServer]:
    loop = asyncio.get_running_loop()
    settings = {
        "process.roles": "broker",
        "node.id": str(BROKER_ID),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "controller1:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": ",".join(map(str, folders)),
        "broker.heartbeat.interval.ms": "100",
    }
    server = BrokerServer(BrokerConfig.from_properties(settings), host_ports(loop, WorkerPool(loop)), loop)
    async with asyncio.timeout(DEADLINE_S):
        try:
            yield server
        finally:
            await server.stop(leave=False)


async def until(condition: Callable[[], bool]) -> None:
    """Return when a condition holds; the caller has a deadline."""
    while not condition():
        await asyncio.sleep(0.01)


async def test_a_replaced_directory_is_reported_before_the_broker_is_unfenced(
    controllers: Controllers, tmp_path: Path
) -> None:
    async with broker(tmp_path) as server:
        await server.start()
        assert server.state.replica_manager.get_leader_partition("t", 0).topic_id == TOPIC_ID
        (registration,) = controllers.requests_of(BrokerRegistrationRequest)
        assigned = controllers.requests_of(AssignReplicasToDirsRequest)[0]
        assert [one.id for one in assigned.directories] == registration.log_dirs
        kinds = [(type(one), getattr(one, "want_fence", None)) for one in controllers.requests]
        assert kinds.index((AssignReplicasToDirsRequest, None)) < kinds.index((BrokerHeartbeatRequest, False))


async def test_logs_are_opened_with_metadata_that_have_caught_up(controllers: Controllers, tmp_path: Path) -> None:
    """Without its replica of the metadata, as after a power failure, a broker must put no folder aside."""
    async with broker(tmp_path) as server:
        await server.start()
    folders = sorted(one.name for one in tmp_path.iterdir() if one.is_dir() and one.name.startswith("t-"))
    assert folders == ["t-0"]
    shutil.rmtree(tmp_path / METADATA_DIRECTORY)
    controllers.quorum.batches_per_fetch = 1
    async with broker(tmp_path) as server:
        await server.start()
        assert server.state.replica_manager.get_leader_partition("t", 0).topic_id == TOPIC_ID
    assert folders == sorted(one.name for one in tmp_path.iterdir() if one.is_dir() and one.name.startswith("t-"))


async def test_heartbeats_have_the_offset_up_to_which_the_metadata_are_applied(
    controllers: Controllers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker(tmp_path) as server:
        await server.start()
        reached = controllers.quorum.end - 1

        def last_offset() -> int:
            return int(controllers.requests_of(BrokerHeartbeatRequest)[-1].current_metadata_offset)

        assert last_offset() == reached
        is_waiting, may_continue = asyncio.Event(), asyncio.Event()

        async def slow(*_: Any) -> None:
            is_waiting.set()
            await may_continue.wait()

        monkeypatch.setattr(server.state.replica_manager, "prepare_logs", slow)
        controllers.append(partition(1))
        await is_waiting.wait()
        count = len(controllers.requests_of(BrokerHeartbeatRequest))
        await until(lambda: len(controllers.requests_of(BrokerHeartbeatRequest)) >= count + 2)
        assert last_offset() == reached
        may_continue.set()
        await until(lambda: last_offset() == reached + 1)


async def test_failures_of_directories_without_replicas_are_reported(controllers: Controllers, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    async with broker(*folders) as server:
        logs = server._directories.log_manager

        def fail(folder: Path) -> UUID:
            failed = logs.directory_ids()[str(folder)]
            logs.held.fail_log_dir(str(folder), OSError(5, "the disk failed"))
            return failed

        failed = []
        # Before the first publication no replica exists whose failure would be reported.
        controllers.on_registration = lambda: failed.append(fail(folders[1]))
        await server.start()
        failed.append(fail(folders[2]))
        await until(lambda: set(controllers.requests_of(BrokerHeartbeatRequest)[-1].offline_log_dirs) == set(failed))


async def test_a_directory_that_fails_before_the_registration_is_not_registered(
    controllers: Controllers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name for name in "ab"]
    async with broker(*folders) as server:
        load = server._directories.load

        async def load_and_fail(*arguments: Any) -> None:
            await load(*arguments)
            server._directories.log_manager.held.fail_log_dir(str(folders[1]), OSError(5, "the disk failed"))

        monkeypatch.setattr(server._directories, "load", load_and_fail)
        await server.start()
        (registration,) = controllers.requests_of(BrokerRegistrationRequest)
        assert registration.log_dirs == list(server._directories.log_manager.directory_ids().values())
        assert len(registration.log_dirs) == 1


async def test_a_failed_directory_of_the_metadata_log_ends_the_start_with_its_name(
    controllers: Controllers, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in "ab"]
    folders[0].write_text("not a directory")
    async with broker(*folders) as server:
        with pytest.raises(StorageError, match=f"metadata.log.dir.*{folders[0]}"):
            await server.start()


async def test_a_directory_of_another_cluster_ends_the_start_with_its_reason(
    controllers: Controllers, tmp_path: Path
) -> None:
    (tmp_path / "meta.properties").write_text(f"version=1\nnode.id={BROKER_ID}\ncluster.id=another\n")
    async with broker(tmp_path) as server:
        with pytest.raises(KafkaError, match="the cluster of the controllers is not another"):
            await server.start()
