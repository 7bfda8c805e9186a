"""Requests that state a timeout are answered within it, and their work continues."""

from __future__ import annotations

import asyncio
import inspect
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tests.server.control_plane import BROKER_ID, ControlPlane
from tests.server.handled import handled
from tests.server.replication.replicas import bare_replica_manager
from tests.waiting import until

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.server.apis.handlers import (
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
    update_features,
)
from barnabas.server.apis.handlers import metadata as metadata_handler
from barnabas.server.controller.admin_manager import TopicCreation
from barnabas.server.coordinator.coordinator_topic import CoordinatorTopic
from barnabas.server.metadata.cluster_features import TRANSACTION_VERSION, UpgradeType
from barnabas.server.replication.replica_manager import ROLES_PER_TURN
from barnabas.server.runtime.loop_sharing import SlicedWork, TimeBudget
from barnabas.server.runtime.ports import no_time
from barnabas.server.runtime.scheduler import BackgroundWork

SOON_SECONDS = 5.0
"""Within this a request with a timeout of some milliseconds has to be answered, however busy the machine."""


class SlowDisk:
    """Makes the replicas of a control plane wait until `is_ready` is set."""

    def __init__(self, plane: ControlPlane) -> None:
        self.is_ready = asyncio.Event()
        replicas: Any = plane.replicas
        self._prepare, self._stop = replicas.prepare_logs, replicas.stop_replicas
        replicas.prepare_logs, replicas.stop_replicas = self.prepare_logs, self.stop_replicas

    def new_role_budget(self) -> TimeBudget:
        return TimeBudget(no_time, items=ROLES_PER_TURN)

    async def prepare_logs(self, topic_ids: Any) -> None:
        await self.is_ready.wait()
        await self._prepare(topic_ids)

    async def stop_replicas(self, topic_partitions: Any, *, delete: bool) -> Any:
        await self.is_ready.wait()
        return await self._stop(topic_partitions, delete=delete)


async def with_topics(*names: str) -> ControlPlane:
    plane = await ControlPlane().start()
    await plane.controller.create_topics([TopicCreation(name, 1, 1) for name in names])
    return plane


async def ask(plane: ControlPlane, handler: ModuleType, version: int, request: Any) -> Any:
    async with asyncio.timeout(SOON_SECONDS):
        answer = handled(handler, plane.context(version), request)
        return await answer if inspect.isawaitable(answer) else answer


def creation(name: str, timeout_ms: int, **fields: Any) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms, **fields)


@pytest.mark.parametrize("timeout_ms", [20, 0, -1])
async def test_create_topics_times_out_and_the_topic_is_created_all_the_same(timeout_ms: int) -> None:
    plane = await with_topics()
    disk = SlowDisk(plane)
    response = await ask(plane, create_topics, 7, creation("t", timeout_ms))
    assert [topic.error_code for topic in response.topics] == [ErrorCode.REQUEST_TIMED_OUT]
    assert "t" not in plane.metadata
    disk.is_ready.set()
    await until(lambda: "t" in plane.metadata)
    response = await ask(plane, create_topics, 7, creation("t", 60_000))
    assert response.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("timeout_ms", [20, 0])
async def test_create_partitions_times_out_and_the_partitions_are_created_all_the_same(timeout_ms: int) -> None:
    plane = await with_topics("t")
    disk = SlowDisk(plane)
    wanted = [CreatePartitionsTopic(name="t", count=3, assignments=None)]
    response = await ask(plane, create_partitions, 3, CreatePartitionsRequest(topics=wanted, timeout_ms=timeout_ms))
    assert [result.error_code for result in response.results] == [ErrorCode.REQUEST_TIMED_OUT]
    disk.is_ready.set()
    await until(lambda: len(plane.replicas.led) == 3)


@pytest.mark.parametrize("timeout_ms", [20, 0])
async def test_delete_topics_times_out_and_the_topic_is_deleted_all_the_same(timeout_ms: int) -> None:
    plane = await with_topics("t")
    disk = SlowDisk(plane)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=timeout_ms)
    response = await ask(plane, delete_topics, 6, request)
    assert [topic.error_code for topic in response.responses] == [ErrorCode.REQUEST_TIMED_OUT]
    disk.is_ready.set()
    await until(lambda: plane.replicas.deleted)


REQUESTS = (
    (create_topics, 7, lambda ms: creation("new", ms)),
    (create_topics, 7, lambda ms: creation("new", ms, validate_only=True)),
    (
        create_partitions,
        3,
        lambda ms: CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)], timeout_ms=ms
        ),
    ),
    (delete_topics, 6, lambda ms: DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=ms)),
    (
        elect_leaders,
        2,
        lambda ms: ElectLeadersRequest(
            topic_partitions=[TopicPartitions(topic="t", partitions=[0])], election_type=0, timeout_ms=ms
        ),
    ),
    (
        alter_partition_reassignments,
        1,
        lambda ms: AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=[BROKER_ID])])
            ],
            timeout_ms=ms,
        ),
    ),
)


def errors(response: Any) -> list[int]:
    for name in ("topics", "results", "responses"):
        if hasattr(response, name):
            return [one.error_code for one in getattr(response, name)]
    raise AssertionError(response)


@pytest.mark.parametrize("timeout_ms", [20, 0])
@pytest.mark.parametrize(("handler", "version", "request_of"), REQUESTS)
async def test_request_that_waits_behind_another_change_is_dropped_at_its_timeout(
    handler: ModuleType, version: int, request_of: Any, timeout_ms: int
) -> None:
    """As in Kafka 4, whose controller does not begin what is too late."""
    plane = await with_topics("t")
    disk = SlowDisk(plane)
    other = asyncio.ensure_future(plane.controller.create_topics([TopicCreation("other", 1, 1)]))
    await until(lambda: plane.controller._change_lock.locked())
    try:
        answers = errors(await ask(plane, handler, version, request_of(timeout_ms)))
    except KafkaError as error:  # the answer as a whole
        answers = [error.code]
    assert answers == [ErrorCode.REQUEST_TIMED_OUT]
    await until(lambda: not plane.controller._background._tasks)
    disk.is_ready.set()
    await other
    assert set(plane.metadata.topic_names) == {"t", "other"}
    assert {name.partition for name in plane.replicas.led} == {0}
    assert not plane.replicas.deleted


async def test_topics_of_one_request_are_created_in_several_changes() -> None:
    """Whatever else has happened in the cluster is dealt with in between."""
    plane = await with_topics()
    began = []

    async def watch() -> None:
        async with plane.controller._change():
            began.append(len(list(plane.metadata.topic_names)))

    disk = SlowDisk(plane)
    work = asyncio.ensure_future(plane.controller.create_topics([TopicCreation(f"t{n}", 1100, 1) for n in range(3)]))
    await until(lambda: plane.controller._change_lock.locked())
    watcher = asyncio.ensure_future(watch())
    await asyncio.sleep(0)
    disk.is_ready.set()
    await work
    await watcher
    assert began == [1]
    assert len(list(plane.metadata.topic_names)) == 3


async def test_update_features_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    plane = await with_topics()
    context = plane.context(2)
    reached, is_ready = asyncio.Event(), asyncio.Event()
    brokers = plane.cluster_store.brokers

    async def slow_brokers() -> Any:
        reached.set()
        await is_ready.wait()
        return await brokers()

    monkeypatch.setattr(plane.cluster_store, "brokers", slow_brokers)
    update = FeatureUpdateKey(feature=TRANSACTION_VERSION, max_version_level=1, upgrade_type=UpgradeType.SAFE_DOWNGRADE)
    request = UpdateFeaturesRequest(feature_updates=[update], timeout_ms=20)
    with pytest.raises(KafkaError) as caught:
        async with asyncio.timeout(SOON_SECONDS):
            await handled(update_features, context, request)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert reached.is_set()
    is_ready.set()
    await until(lambda: not context.broker.features._background._tasks)


async def test_metadata_does_not_wait_for_ever_for_a_topic_that_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    plane = await with_topics()
    SlowDisk(plane)
    monkeypatch.setattr(metadata_handler, "AUTO_CREATION_MS", 20)
    steps = handled(metadata_handler, plane.context(9), MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
    async with asyncio.timeout(SOON_SECONDS):
        response = await steps
    assert [topic.error_code for topic in response.topics] == [ErrorCode.LEADER_NOT_AVAILABLE]
    await plane.controller.close()


async def test_find_coordinator_does_not_wait_for_ever_for_its_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    plane = await with_topics()
    SlowDisk(plane)
    monkeypatch.setattr("barnabas.server.coordinator.coordinator_topic.CREATION_SECONDS", 0.02)
    topic = CoordinatorTopic(
        "__consumer_offsets",
        metadata=plane.metadata,
        controller=plane.controller,
        loop=asyncio.get_running_loop(),
        on_created=lambda: None,
    )
    with pytest.raises(KafkaError) as caught:
        async with asyncio.timeout(SOON_SECONDS):
            await topic.find_coordinator("g")
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await topic.close()


async def test_work_in_the_background_goes_on_when_its_request_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    work, is_ready, done = BackgroundWork(), asyncio.Event(), []

    async def change() -> None:
        await is_ready.wait()
        done.append(True)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no room")

    request = asyncio.ensure_future(work.wait_for("a change", change(), 60_000))
    await asyncio.sleep(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    is_ready.set()
    await until(lambda: done)
    await until(lambda: "a change failed" in caplog.text)


async def test_delete_records_times_out_while_its_disk_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    from barnabas.server.replication import replica_manager

    monkeypatch.setattr(replica_manager, "MIN_DISK_WAIT_MS", 0)
    loop, is_ready = asyncio.get_running_loop(), asyncio.Event()

    async def run_on_lanes(tasks: object) -> None:
        await is_ready.wait()

    partition = SimpleNamespace(delete_records=lambda offset: offset, followers=None)
    log_manager = SimpleNamespace(checkpoint_steps=lambda name, only: iter(()), held=SimpleNamespace())
    manager = bare_replica_manager(loop, log_manager, SlicedWork(loop, no_time))
    monkeypatch.setattr(manager, "run_on_lanes", run_on_lanes)
    monkeypatch.setattr(manager, "get_leader_partition", lambda topic, index: partition)
    async with asyncio.timeout(SOON_SECONDS):
        (late,) = await manager.delete_records([("t", 0, 5)], 20)
    assert isinstance(late, KafkaError)
    assert late.code is ErrorCode.REQUEST_TIMED_OUT
    is_ready.set()
    assert await manager.delete_records([("t", 0, 5)], 60_000) == [5]
