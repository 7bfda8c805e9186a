"""One request of a megabyte, whatever it asks for, keeps nobody waiting and does not cost the broker its memory."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.hostile.in_process import HostileConnection
from tests.hostile.record_forge import honest_batch
from tests.hostile.worst_requests import (
    FRAME_BYTES,
    GROUP,
    PACKED,
    PATIENT,
    TOPIC,
    WIDE,
    WIDE_PARTITIONS,
    WORST,
    by_name,
    noise_batch,
    tiny_batch,
)

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_response, encode_request
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.headers import RequestHeader, decode_response_header, encode_request_header
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.server.apis.kafka_apis import KafkaApis
from barnabas.server.apis.table import SERVED
from barnabas.server.broker import BrokerServer
from barnabas.server.broker_state import services
from barnabas.server.cleaning.worker_pool import WorkerPool
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.runtime.host import host_ports

MOST_SECONDS = 0.25
"""Of the loop's processor, in one turn."""
MOST_BYTES = 64 << 20
ANSWER_SECONDS = 100.0
SMALL = {ApiKey.HEARTBEAT, ApiKey.API_VERSIONS, ApiKey.INIT_PRODUCER_ID, ApiKey.DESCRIBE_ACLS, ApiKey.DESCRIBE_CLUSTER}
SMALL |= {ApiKey.LIST_CONFIG_RESOURCES}
"""APIs whose requests have nothing in them that there could be many of."""
SETTINGS = {"listeners": "PLAINTEXT://127.0.0.1:0", "broker.id": "1", "log.cleaner.enable": "false"}


class LongestTurn:
    """How much processor time the loop's thread spends in one callback."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        inner = asyncio.Handle._run

        def run(handle: asyncio.Handle) -> None:
            began = time.thread_time()
            try:
                inner(handle)
            finally:
                self.seconds = max(self.seconds, time.thread_time() - began)

        monkeypatch.setattr(asyncio.Handle, "_run", run)


class Peak:
    """The process's resident memory at its highest, above what it was (Linux)."""

    def __init__(self) -> None:
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")
        self._before = self._read("VmRSS")

    @staticmethod
    def _read(what: str) -> int:
        (line,) = [one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith(what)]
        return int(line.split()[1]) * 1024

    @property
    def bytes(self) -> int:
        return self._read("VmHWM") - self._before


class Client(HostileConnection):
    """One that notes how long the answer is, and drops it."""

    def send(self, parts: list[Any], size: int) -> None:
        assert self.answer is None, "answered twice"
        assert size == sum(len(part) for part in parts)
        self.answer = size.to_bytes(4, "big")


class Cluster:
    """A broker that is handed frames."""

    def __init__(self, server: BrokerServer, apis: KafkaApis, topic_id: UUID) -> None:
        self.apis = apis
        self.topic_id = topic_id
        self.listener = server.listeners[0]

    async def call(self, frame: bytes) -> Client:
        connection, body = Client(self.listener), bytearray(frame)
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(self._handle, connection, body)
        await asyncio.sleep(0.01)
        deadline = time.monotonic() + ANSWER_SECONDS
        while not connection.is_decided and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        return connection

    def _handle(self, connection: Any, body: bytearray) -> None:
        try:
            self.apis.handle(connection, memoryview(body), 0, len(body))
        except ProtocolError:
            connection.close()

    async def ask(self, key: ApiKey, version: int, request: object) -> None:
        """An honest request, whose turns nobody measures."""
        head = encode_request_header(RequestHeader(key, version, 1, "honest"))
        connection = Client(self.listener)
        self._handle(connection, bytearray(head + encode_request(request, version)))
        async with asyncio.timeout(ANSWER_SECONDS):
            while not connection.is_decided:
                await asyncio.sleep(0.001)
        assert connection.answer is not None


@asynccontextmanager
async def others_forgotten() -> AsyncIterator[None]:
    """Let no collection of garbage look at what earlier tests of this process have left alive."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    """A broker with much in few places."""
    loop = asyncio.get_running_loop()
    config = BrokerConfig.from_properties({"log.dirs": str(folder), **SETTINGS})
    server = BrokerServer(config, host_ports(loop, WorkerPool(loop)), loop)
    await server.start()
    apis = KafkaApis(services(server.state), loop)
    try:
        await server.create_topic(TOPIC, 1, {})
        packed = {"compression.type": "zstd", "compression.zstd.level": "22"}
        await server.create_topic(PACKED, 1, packed)
        await server.create_topic(PATIENT, 1, packed | {"max.message.bytes": "500000000"})
        await server.create_topic(WIDE, WIDE_PARTITIONS, {})
        topic_id = server.state.metadata.topic_id(TOPIC)
        assert topic_id is not None
        here = Cluster(server, apis, topic_id)
        chance = random.Random(1)
        batches = [honest_batch(chance, producer_id=n, producer_epoch=0, base_sequence=0) for n in range(2000)]
        for records in [*batches, *[tiny_batch(100_000)] * 10]:
            data = [TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=records)])]
            await here.ask(ApiKey.PRODUCE, 9, ProduceRequest(acks=1, timeout_ms=1000, topic_data=data))
        await here.ask(ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]))
        while server.state.groups.is_loading:
            await asyncio.sleep(0.01)
        partitions = [
            OffsetCommitRequestPartition(partition_index=n, committed_offset=1) for n in range(WIDE_PARTITIONS)
        ]
        commit = OffsetCommitRequest(
            group_id=GROUP, topics=[OffsetCommitRequestTopic(name=WIDE, partitions=partitions)]
        )
        commit.generation_id_or_member_epoch = -1
        await here.ask(ApiKey.OFFSET_COMMIT, 8, commit)
        yield here
    finally:
        await apis.close()
        await server.stop()


def test_every_api_is_tried() -> None:
    assert {one.key for one in WORST} | SMALL == set(SERVED)


@pytest.mark.timeout(900)
async def test_nobody_waits_for_one_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    complaints = []
    async with cluster(tmp_path) as here, others_forgotten():
        for name, worst in by_name():
            frame = worst.frame(here.topic_id)
            assert len(frame) <= FRAME_BYTES
            await asyncio.sleep(0)
            with monkeypatch.context() as patch:
                peak, turn = Peak(), LongestTurn(patch)
                client = await here.call(frame)
                seconds, size = turn.seconds, peak.bytes
            if not client.is_decided or here.apis.failures or seconds > MOST_SECONDS or size > MOST_BYTES:
                complaints.append(f"{name}: {seconds:.3f} s, {size >> 20} MB, answered: {client.is_decided}")
    assert not complaints
    assert here.apis.failures == 0


async def test_what_came_first_is_first_in_the_log_whatever_it_takes_to_validate(tmp_path: Path) -> None:
    async with cluster(tmp_path) as here:

        def ask(records: bytes, topic: str) -> HostileConnection:
            data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])]
            request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=data)
            head = encode_request_header(RequestHeader(ApiKey.PRODUCE, 9, 1, "honest"))
            connection, body = HostileConnection(here.listener), bytearray(head + encode_request(request, 9))
            here.apis.handle(connection, memoryview(body), 0, len(body))  # type: ignore[arg-type]
            body[:] = bytes(len(body))  # as the connection's next request would
            return connection

        small = honest_batch(random.Random(1))
        asked = [ask(records, PACKED) for records in (noise_batch(300_000), small, noise_batch(200_000), small)]
        elsewhere = ask(small, TOPIC)
        assert elsewhere.is_decided and not any(one.is_decided for one in asked)
        async with asyncio.timeout(ANSWER_SECONDS):
            while not all(one.is_decided for one in asked):
                await asyncio.sleep(0.01)
        offsets = []
        for one in asked:
            assert one.answer is not None
            _, position = decode_response_header(ApiKey.PRODUCE, 9, one.answer, 4, len(one.answer))
            response = decode_response(ApiKey.PRODUCE, 9, one.answer, position, len(one.answer))
            (partition,) = response.responses[0].partition_responses
            assert partition.error_code == 0
            offsets.append(partition.base_offset)
        assert offsets[0] == 0
        assert offsets == sorted(set(offsets))
