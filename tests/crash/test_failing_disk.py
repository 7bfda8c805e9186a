"""A failing disk under a live broker: its directory is offline for good, the others go on, no promise is broken."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from soak.hostile.in_process import HostileConnection
from tests.crash.faulty_files import FaultyFileSystem
from tests.frames import request_body
from tests.storage.lanes import checkpoint

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_response
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.headers import decode_response_header
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.record_batch import iter_batches
from barnabas.protocol.record_batch_builder import RecordBatchBuilder
from barnabas.server.apis.kafka_apis import KafkaApis
from barnabas.server.broker import BrokerServer
from barnabas.server.broker_state import services
from barnabas.server.cleaning.worker_pool import WorkerPool
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.runtime.host import host_ports

ANSWER_SECONDS = 60.0
STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


class LiveBroker:
    """A broker with one topic in each of two log directories, on a disk that can be made to fail."""

    def __init__(self, folder: Path, *, directories: int = 2, store_elsewhere: bool = True) -> None:
        self.directories = [str(folder / f"disk-{number}") for number in range(directories)]
        self.disk = FaultyFileSystem()
        self.acknowledged: dict[str, dict[int, bytes]] = {"a": {}, "b": {}}
        loop = asyncio.get_running_loop()
        settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": ",".join(self.directories)}
        settings |= {
            "log.retention.ms": "-1",
            "log.segment.bytes": "5000",
            "log.index.size.max.bytes": "4096",
            "log.initial.task.delay.ms": "0",
        }
        if store_elsewhere:
            settings["metadata.store.path"] = str(folder / "store")
        ports = dataclasses.replace(host_ports(loop, WorkerPool(loop)), filesystem=self.disk)
        self.server = BrokerServer(BrokerConfig.from_properties(settings), ports, loop)
        self.apis: KafkaApis | None = None

    async def start(self) -> None:
        await self.server.start()
        for name in ("a", "b"):
            await self.server.create_topic(name, 1, {}, exist_ok=True)
        state, loop = self.server.state, asyncio.get_running_loop()
        self.apis = KafkaApis(services(state), loop, quotas=state.quotas, turn_queue=state.turn_queue)

    def directory_of(self, topic: str) -> str:
        partition = self.server.state.replica_manager.get_partition(topic, 0)
        assert partition is not None
        return partition.log.directory

    async def call(self, key: ApiKey, version: int, request: object) -> Any:
        connection = HostileConnection(self.server.listeners[0])
        body = request_body(key, version, request)
        assert self.apis is not None
        self.apis.handle(connection, memoryview(bytearray(body)), 0, len(body))  # type: ignore[arg-type]
        async with asyncio.timeout(ANSWER_SECONDS):
            while not connection.is_decided:
                await asyncio.sleep(0.001)
        assert connection.answer is not None, "the connection was closed"
        answer = connection.answer[4:]
        _, position = decode_response_header(key, version, answer, 0, len(answer))
        return decode_response(key, version, answer, position, len(answer))

    async def produce(self, topic: str, acks: int = -1, timeout_ms: int = 60_000) -> ErrorCode:
        builder = RecordBatchBuilder()
        value = os.urandom(300)
        builder.append(None, value, (), 1_700_000_000_000)
        data = PartitionProduceData(index=0, records=builder.build())
        topics = [TopicProduceData(name=topic, partition_data=[data])]
        request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics)
        answer = (await self.call(ApiKey.PRODUCE, 9, request)).responses[0].partition_responses[0]
        if answer.error_code == ErrorCode.NONE:
            self.acknowledged[topic][answer.base_offset] = value
        return ErrorCode(answer.error_code)

    async def fetch(self, topic: str, offset: int = 0) -> tuple[ErrorCode, dict[int, bytes]]:
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[wanted])])
        found = (await self.call(ApiKey.FETCH, 12, request)).responses[0].partitions[0]
        records = [record for batch in iter_batches(found.records or b"") for record in batch.records()]
        return ErrorCode(found.error_code), {record.offset: bytes(record.value) for record in records}

    async def read_all(self, topic: str) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        while True:
            error, records = await self.fetch(topic, max(found, default=-1) + 1)
            assert error is ErrorCode.NONE, (error, sorted(found)[-1:])
            if not records:
                return found
            found |= records

    async def assert_all_there(self, topic: str, acknowledged: dict[int, bytes]) -> None:
        found = await self.read_all(topic)
        assert {offset: found.get(offset) for offset in acknowledged} == acknowledged


@asynccontextmanager
async def live_broker(folder: Path, **options: Any) -> AsyncIterator[LiveBroker]:
    broker = LiveBroker(folder, **options)
    await broker.start()
    try:
        yield broker
    finally:
        broker.disk.faults.clear()
        await broker.server.stop()


async def fill(broker: LiveBroker, topic: str, count: int = 40) -> None:
    for _ in range(count):
        assert await broker.produce(topic) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("operation", "number", "acks"),
    [
        ("fdatasync", errno.EIO, -1),
        ("fdatasync", errno.ENOSPC, -1),
        ("pwrite", errno.EIO, 1),
        ("pwrite", errno.EIO, -1),
        ("pwrite", errno.EROFS, 1),
    ],
)
async def test_a_disk_that_cannot_write_is_offline_until_a_restart(
    tmp_path: Path, operation: str, number: int, acks: int
) -> None:
    async with live_broker(tmp_path) as broker:
        assert broker.directory_of("a") != broker.directory_of("b")
        await fill(broker, "a")
        await fill(broker, "b")
        bad = broker.directory_of("a")
        for failing in {operation, "fsync" if operation == "fdatasync" else operation}:
            broker.disk.faults[failing, bad] = number
        assert await broker.produce("a", acks) is STORAGE_ERROR
        broker.disk.faults.clear()
        for _ in range(3):
            assert await broker.produce("a", acks) is STORAGE_ERROR, "it must not be tried again"
            assert (await broker.fetch("a"))[0] is STORAGE_ERROR
            assert await broker.produce("b", acks) is ErrorCode.NONE
        await broker.assert_all_there("b", broker.acknowledged["b"])
        assert not broker.server.failed.is_set()
        acknowledged = broker.acknowledged
    async with live_broker(tmp_path) as again:
        for topic in ("a", "b"):
            await again.assert_all_there(topic, acknowledged[topic])
            assert await again.produce(topic) is ErrorCode.NONE


async def test_everybody_who_waits_for_a_failing_flush_is_told(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as broker:
        await fill(broker, "b", 3)
        bad = broker.directory_of("a")
        broker.disk.faults |= {("fdatasync", bad): errno.EIO, ("fsync", bad): errno.EIO}
        results = await asyncio.gather(*(broker.produce("a" if number % 2 else "b") for number in range(40)))
        assert set(results[1::2]) == {STORAGE_ERROR}
        assert set(results[::2]) == {ErrorCode.NONE}


async def test_a_disk_that_cannot_read_is_offline_and_the_other_goes_on(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as broker:
        await fill(broker, "a")
        await fill(broker, "b")
        bad = broker.directory_of("a")
        broker.disk.faults |= {("pread", bad): errno.EIO}
        assert (await broker.fetch("a"))[0] is STORAGE_ERROR
        assert await broker.produce("a") is STORAGE_ERROR
        await broker.assert_all_there("b", broker.acknowledged["b"])
        acknowledged = broker.acknowledged
    async with live_broker(tmp_path) as again:
        await again.assert_all_there("a", acknowledged["a"])


async def test_a_broker_without_any_disk_says_that_it_has_failed(tmp_path: Path) -> None:
    async with live_broker(tmp_path, directories=1) as broker:
        await fill(broker, "a", 3)
        bad = broker.directory_of("a")
        broker.disk.faults |= {("fdatasync", bad): errno.EIO, ("fsync", bad): errno.EIO}
        assert await broker.produce("a") is STORAGE_ERROR
        async with asyncio.timeout(60):
            await broker.server.failed.wait()


async def test_records_are_not_said_to_be_deleted_where_the_disk_fails(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as broker:
        for topic in ("a", "b"):
            await fill(broker, topic, 3)
        broker.disk.faults["fsync", broker.directory_of("a")] = errno.EIO
        part = DeleteRecordsPartition(partition_index=0, offset=2)
        topics = [DeleteRecordsTopic(name=topic, partitions=[part]) for topic in ("a", "b")]
        answer = await broker.call(ApiKey.DELETE_RECORDS, 2, DeleteRecordsRequest(topics=topics, timeout_ms=60_000))
        results = {topic.name: topic.partitions[0] for topic in answer.topics}
        assert (results["a"].error_code, results["a"].low_watermark) == (STORAGE_ERROR, -1)
        assert (results["b"].error_code, results["b"].low_watermark) == (ErrorCode.NONE, 2)
        assert await broker.produce("a") is STORAGE_ERROR
        assert await broker.produce("b") is ErrorCode.NONE


async def test_a_topic_whose_folder_cannot_be_let_go_is_deleted_by_the_next_start(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as broker:
        await fill(broker, "a", 3)
        broker.disk.faults["fsync_dir", broker.directory_of("a")] = errno.EIO
        with pytest.raises(KafkaError):
            await broker.server.delete_topic("a")
        assert await broker.produce("b") is ErrorCode.NONE
    again = LiveBroker(tmp_path)
    try:
        await again.server.start()
        assert {name for name, _ in again.server.state.log_manager.logs} == {"b"}
    finally:
        await again.server.stop()


@pytest.mark.parametrize("operation", ["open", "pwrite", "fsync", "fsync_dir"])
async def test_a_checkpoint_that_finds_no_room_is_no_failure(tmp_path: Path, operation: str) -> None:
    async with live_broker(tmp_path) as broker:
        await fill(broker, "a", 3)
        path = f"{broker.directory_of('a')}/replication-offset-checkpoint"
        where = path if operation != "fsync_dir" else broker.directory_of("a")
        broker.disk.faults[operation, where] = errno.ENOSPC
        checkpoint(broker.server.state.log_manager, "replication-offset-checkpoint")
        assert broker.disk.refused
        assert await broker.produce("a", 1) is ErrorCode.NONE


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
async def test_too_many_open_files_pass_by(tmp_path: Path, number: int) -> None:
    async with live_broker(tmp_path) as broker:
        await fill(broker, "a", 60)
        for directory in broker.directories:
            broker.disk.faults["open", directory] = number
        for _ in range(30):
            answer = await broker.produce("a", timeout_ms=5000)
            assert answer in (ErrorCode.NONE, STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT)
            assert (await broker.fetch("a"))[0] in (ErrorCode.NONE, STORAGE_ERROR)
        checkpoint(broker.server.state.log_manager)
        assert broker.disk.refused
        broker.disk.faults.clear()
        await fill(broker, "a", 30)
        await broker.assert_all_there("a", broker.acknowledged["a"])
        acknowledged = broker.acknowledged["a"]
    async with live_broker(tmp_path) as again:
        await again.assert_all_there("a", acknowledged)


@pytest.mark.parametrize("operation", ["open", "pwrite", "fsync", "fsync_dir"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
async def test_a_topic_that_cannot_be_made_is_no_end(tmp_path: Path, operation: str, number: int) -> None:
    """A full disk leaves everything as it is; a failing one is offline, and with the last one the broker ends."""
    async with live_broker(tmp_path, directories=1) as broker:
        await fill(broker, "a", 3)
        broker.disk.faults[operation, broker.directories[0]] = number
        topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(timeout_ms=5000, topics=[topic])
        await broker.call(ApiKey.CREATE_TOPICS, 5, request)
        assert broker.disk.refused
        broker.disk.faults.clear()
        assert broker.apis is not None
        assert broker.apis.failures == 0
        if number == errno.ENOSPC:
            assert await broker.produce("a") is ErrorCode.NONE
            assert not broker.server.failed.is_set()
        else:
            assert await broker.produce("a") is STORAGE_ERROR
            async with asyncio.timeout(60):
                await broker.server.failed.wait()
