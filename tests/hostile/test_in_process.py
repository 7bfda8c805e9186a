"""Hostile frames handled by a whole broker in this process, and what they may leave behind for honest readers."""

from __future__ import annotations

import asyncio
import gc
import random
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from soak.hostile.frame_forge import FrameForge, Outcome, expect
from soak.hostile.in_process import SETTINGS, HostileConnection, InProcessFuzz
from soak.hostile.record_forge import rewrite, valid_batch
from tests.frames import request_body

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.batch_header import HEADER_SIZE
from barnabas.protocol.codec import decode_response
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.headers import RequestHeader, decode_response_header, encode_request_header
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.server.apis.handlers.describe_configs import MAX_ENTRIES
from barnabas.server.apis.kafka_apis import KafkaApis
from barnabas.server.broker import BrokerServer
from barnabas.server.broker_state import services
from barnabas.server.cleaning.worker_pool import WorkerPool
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.replication.fetch_session import MAX_PARTITIONS
from barnabas.server.runtime.host import host_ports

Call = Callable[[ApiKey, int, object], Awaitable[Any]]


async def fuzz(folder: Path, frames: int, seed: int) -> None:
    run = InProcessFuzz(folder, seed)
    await run.run(frames)
    assert not run.complaints, f"seed {seed}: {len(run.complaints)} complaints, first {run.complaints[0]}"
    assert min(run.outcomes[outcome] for outcome in Outcome) > frames / 200, run.outcomes


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_frame_makes_a_handler_fail(tmp_path: Path, seed: int) -> None:
    await fuzz(tmp_path, 4_000, seed)


async def test_no_error_is_left_to_the_garbage_collector(tmp_path: Path) -> None:
    """An error kept as a value holds the frames that it came through, and one of those may hold the error."""
    gc.collect()
    gc.disable()
    try:
        await fuzz(tmp_path, 4_000, 4)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = [error for error in gc.garbage if isinstance(error, KafkaError)]
        assert not left, (
            f"{len(left)} errors, first {left[0]!r}, raised in {traceback.format_tb(left[0].__traceback__)}"
        )
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.verify
@pytest.mark.timeout(600)
async def test_no_frame_among_many_makes_a_handler_fail(tmp_path: Path) -> None:
    await fuzz(tmp_path, 150_000, 3)


def test_a_seed_replays() -> None:
    runs = [[forge.next() for _ in range(300)] for forge in (_forge(7), _forge(7), _forge(8))]
    assert runs[0] == runs[1] != runs[2]


def _forge(seed: int) -> FrameForge:
    return FrameForge(seed, [("t", UUID(int=1))], variants=1, with_bombs=False)


def test_the_oracle_knows_good_from_bad() -> None:
    header = encode_request_header(RequestHeader(ApiKey.API_VERSIONS, 0, 5, None))
    outcomes = [
        expect(header),
        expect(header[:5]),
        expect(b"\x12\x34" + header[2:]),
        expect(b"\0\x12\0\x63" + header[4:]),
    ]
    assert [frame.outcome for frame in outcomes if frame is not None] == [
        Outcome.ANSWER,
        Outcome.CLOSE,
        Outcome.CLOSE,
        Outcome.ANSWER,
    ]


async def with_broker(folder: Path, talk: Callable[[Call, KafkaApis], Awaitable[None]], **settings: str) -> None:
    """A broker with the topic `t`, and a way to call it."""
    loop = asyncio.get_running_loop()
    config = BrokerConfig.from_properties({"log.dirs": str(folder), **SETTINGS, **settings})
    server = BrokerServer(config, host_ports(loop, WorkerPool(loop)), loop)
    await server.start()
    try:
        await server.create_topic("t", 1, {})
        state = server.state
        apis = KafkaApis(services(state), loop, quotas=state.quotas, turn_queue=state.turn_queue)

        async def call(key: ApiKey, version: int, request: object) -> Any:
            connection = HostileConnection(server.listeners[0])
            body = request_body(key, version, request)
            apis.handle(connection, memoryview(bytearray(body)), 0, len(body))  # type: ignore[arg-type]
            while not connection.is_decided:
                await asyncio.sleep(0.001)
            assert connection.answer is not None, "the connection was closed"
            answer = connection.answer[4:]
            _, position = decode_response_header(key, version, answer, 0, len(answer))
            return decode_response(key, version, answer, position, len(answer))

        await talk(call, apis)
    finally:
        await server.stop()


def produce(records: bytes) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[data])])


def offsets(timestamp: int) -> ListOffsetsRequest:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=1)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wanted])])


async def test_bytes_that_are_no_records_condemn_only_themselves(tmp_path: Path) -> None:
    """Whoever has to look into records that the disk lost, under a CRC that is right, finds a corrupt message."""

    async def talk(call: Call, apis: KafkaApis) -> None:
        late: dict[str, Any] = {"base_timestamp": 2_000_000_000_000, "max_timestamp": 2_000_000_000_000}
        answer = await call(ApiKey.PRODUCE, 9, produce(rewrite(valid_batch(random.Random(1)), **late)))
        assert answer.responses[0].partition_responses[0].error_code == 0
        (segment,) = tmp_path.glob("t-0/*.log")
        stored = segment.read_bytes()
        segment.write_bytes(rewrite(stored, payload=b"\xff" * (len(stored) - HEADER_SIZE)))
        for timestamp in (-3, 1_900_000_000_000):
            found = (await call(ApiKey.LIST_OFFSETS, 8, offsets(timestamp))).topics[0].partitions[0]
            assert found.error_code == ErrorCode.CORRUPT_MESSAGE, timestamp
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        old = FetchRequest(topics=[FetchTopic(topic="t", partitions=[wanted])])
        fetched = (await call(ApiKey.FETCH, 1, old)).responses[0].partitions[0]
        assert fetched.error_code == ErrorCode.CORRUPT_MESSAGE
        assert apis.failures == 0

    await with_broker(tmp_path, talk)


async def test_old_versions_of_list_offsets_are_answered_where_there_are_leader_epochs(tmp_path: Path) -> None:
    async def talk(call: Call, apis: KafkaApis) -> None:
        await call(ApiKey.PRODUCE, 9, produce(valid_batch(random.Random(1))))
        for version in range(1, 11):
            for timestamp in (-1, -2):
                found = (await call(ApiKey.LIST_OFFSETS, version, offsets(timestamp))).topics[0].partitions[0]
                assert found.error_code == 0 and found.offset >= 0, (version, timestamp)
        assert apis.failures == 0

    await with_broker(tmp_path, talk)


async def test_a_page_cursor_that_points_nowhere_is_refused_topic_by_topic(tmp_path: Path) -> None:
    async def talk(call: Call, apis: KafkaApis) -> None:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name="t")],
            response_partition_limit=10,
            cursor=Cursor(topic_name="t", partition_index=-1),
        )
        answer = await call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)
        assert [topic.error_code for topic in answer.topics] == [ErrorCode.INVALID_REQUEST]
        assert apis.failures == 0

    await with_broker(tmp_path, talk)


@pytest.mark.parametrize("version", [0, 1, 3, 4, 12])
async def test_no_version_of_fetch_may_ask_for_everything_at_once(tmp_path: Path, version: int) -> None:
    async def talk(call: Call, apis: KafkaApis) -> None:
        for number in range(40):
            await call(ApiKey.PRODUCE, 9, produce(valid_batch(random.Random(number))))
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**31 - 1)
        request = FetchRequest(max_bytes=2**31 - 1, topics=[FetchTopic(topic="t", partitions=[wanted])])
        fetched = (await call(ApiKey.FETCH, version, request)).responses[0].partitions[0]
        assert 0 < len(fetched.records) <= 2048

    await with_broker(tmp_path, talk, **{"fetch.max.bytes": "1024"})


async def test_a_small_request_cannot_ask_for_gigabytes_of_settings(tmp_path: Path) -> None:
    """Resources named again and again, under all spellings of one broker's id, are worked out once."""

    async def talk(call: Call, apis: KafkaApis) -> None:
        names = ["1"] * 9_000 + ["0" * zeros + "1" for zeros in range(60)] + ["0" * 5000 + "1"]
        resources = [DescribeConfigsResource(resource_type=4, resource_name=name) for name in names]
        resources += [DescribeConfigsResource(resource_type=32, resource_name=str(n)) for n in range(15_000)]
        request = DescribeConfigsRequest(resources=resources, include_documentation=True)
        answer = await call(ApiKey.DESCRIBE_CONFIGS, 4, request)
        assert sum(len(result.configs) for result in answer.results) <= MAX_ENTRIES
        errors = Counter(result.error_code for result in answer.results)
        assert errors[ErrorCode.INVALID_REQUEST] == 1
        assert errors[ErrorCode.POLICY_VIOLATION] > 0
        assert apis.failures == 0

    # One broker is asked by its id, which is 1 by default.
    await with_broker(tmp_path, talk)


async def test_one_request_for_many_topics_does_not_hold_up_the_others(tmp_path: Path) -> None:
    async def talk(call: Call, apis: KafkaApis) -> None:
        topics = [CreatableTopic(name=f"n{n}", num_partitions=1, replication_factor=1) for n in range(3000)]
        request = CreateTopicsRequest(validate_only=True, timeout_ms=60_000, topics=topics)
        creation = asyncio.ensure_future(call(ApiKey.CREATE_TOPICS, 5, request))
        slowest = 0.0
        while not creation.done():
            began = time.thread_time()
            await asyncio.sleep(0)
            slowest = max(slowest, time.thread_time() - began)
        assert {topic.error_code for topic in (await creation).topics} == {0}
        assert slowest < 1.0, f"nobody else was served for {slowest:.1f} s"

    await with_broker(tmp_path, talk)


async def test_fetch_sessions_remember_a_bounded_number_of_partitions(tmp_path: Path) -> None:
    """Readers for whom there is no room are answered without a session; one that outgrows its own has to begin anew."""

    def fetch(first: int, *, session: int = 0, epoch: int = 0) -> FetchRequest:
        wanted = [FetchPartition(partition=first + n, partition_max_bytes=1) for n in range(20_000)]
        topics = [FetchTopic(topic="t", partitions=wanted)]
        return FetchRequest(session_id=session, session_epoch=epoch, topics=topics)

    async def talk(call: Call, apis: KafkaApis) -> None:
        answers = [await call(ApiKey.FETCH, 12, fetch(0)) for _ in range(8)]
        ids = [answer.session_id for answer in answers]
        assert all(ids[: MAX_PARTITIONS // 20_000]) and not any(ids[MAX_PARTITIONS // 20_000 :])
        assert len(answers[-1].responses[0].partitions) == 20_000
        outgrown = await call(ApiKey.FETCH, 12, fetch(20_000, session=ids[0], epoch=1))
        assert outgrown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        # Its place is free again.
        assert (await call(ApiKey.FETCH, 12, fetch(0))).session_id
        assert apis.failures == 0

    await with_broker(tmp_path, talk)


async def test_offsets_may_be_kept_for_longer_than_time_can_tell(tmp_path: Path) -> None:
    async def talk(call: Call, apis: KafkaApis) -> None:
        wanted = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=-1,
            retention_time_ms=2**63 - 1,
            topics=[OffsetCommitRequestTopic(name="t", partitions=[wanted])],
        )
        answer = await call(ApiKey.OFFSET_COMMIT, 3, request)
        assert len(answer.topics[0].partitions) == 1
        assert apis.failures == 0

    await with_broker(tmp_path, talk)
