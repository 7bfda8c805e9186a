"""Produce: every version, every refusal, partitions that fail on their own, acknowledgements, idempotence."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from tests.server.data_plane import (
    PAGE_CACHE,
    DataPlane,
    at,
    batch,
    fetch,
    idempotent,
    legacy_records,
    only_fetched,
    only_produced,
    play,
    produce,
    values_in,
)

from barnabas.clients.connection import BrokerConnection
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.batch_header import write_crc
from barnabas.protocol.compression import Compression
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.legacy_records import build_message_set
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.record import TimestampType
from barnabas.protocol.record_batch import iter_batches
from barnabas.protocol.sequence_gap_guard import FOLLOWING_REQUESTS, LONGEST_NAME, MAX_PARTITIONS, SequenceGapGuard
from barnabas.server.replication.partition import Partition
from barnabas.simulation.machines import WorkDelays

SLOW_DISK = WorkDelays(usual=0.5)
LAST = 13


async def error_of(connection: BrokerConnection, records: bytes | None, version: int = 12, **options: Any) -> ErrorCode:
    """Produce to t-0 and give the error; the answer then has no offset."""
    answer = only_produced(await connection.send(produce(records, **options), version))  # type: ignore[arg-type]
    if answer.error_code != ErrorCode.NONE:
        assert (answer.base_offset, answer.log_append_time_ms, answer.log_start_offset) == (-1, -1, -1)
    return ErrorCode(answer.error_code)


@pytest.mark.parametrize("acks", [1, -1])
def test_every_version(acks: int) -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        for version in range(LAST + 1):
            magic = 0 if version < 2 else 1
            legacy = build_message_set(legacy_records(b"old"), magic=magic)
            records = legacy if version < 3 else batch(b"new")
            request = produce(records, topic_id=plane.topic_id(), acks=acks)
            answer = only_produced(await connection.send(request, version))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, version), version
            assert (answer.log_append_time_ms, answer.log_start_offset) == (-1, 0 if version >= 5 else -1)
        data = only_fetched(await connection.send(fetch(at(0)), 12))
        assert values_in(data) == [b"old"] * 3 + [b"new"] * (LAST - 2)
        assert data.high_watermark == LAST + 1

    play(talk)


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
def test_old_versions_bring_message_sets_of_several_records(version: int, codec: Compression) -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        records = build_message_set(legacy_records(b"a", b"b", b"c"), magic=min(version // 2, 1), codec=codec)
        for base_offset in (0, 3):
            answer = only_produced(await connection.send(produce(records, acks=-1), version))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, base_offset)
        assert values_in(only_fetched(await connection.send(fetch(at(0)), 12))) == [b"a", b"b", b"c"] * 2

    play(talk)


@pytest.mark.parametrize("acks", [1, -1])
def test_no_records_are_fine_up_to_version_2_and_refused_later(acks: int) -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        for version in range(LAST + 1):
            # The last one is the beginning of a message, which old clients may leave at the end of a set.
            for records in (None, b"", b"\0" * 5):
                request = produce(records, topic_id=plane.topic_id(), acks=acks)
                answer = only_produced(await connection.send(request, version))
                expected = ErrorCode.NONE if version < 3 else ErrorCode.INVALID_RECORD
                assert (answer.error_code, answer.base_offset) == (expected, -1), (version, records)
        assert plane.partition().log.log_end_offset == 0
        assert plane.partition().durable_end_offset() == 0
        assert await error_of(connection, batch(b"v"), acks=-1) is ErrorCode.NONE

    play(talk)


def test_a_partition_that_is_not_here_comes_before_what_is_wrong_with_the_request() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        for version in (0, 2, 3, 9, 12):
            for wrong in ({"topic": "nothing"}, {"index": 9}):
                for records, acks in ((b"", 1), (batch(b"a") + batch(b"b"), -1), (batch(b"v"), 2)):
                    request = produce(records, acks=acks, **wrong)
                    answer = only_produced(await connection.send(request, version))
                    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, (version, wrong, acks)

    play(talk)


def test_exactly_one_batch_of_format_2_since_version_3() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        for version in (3, 9, 12):
            assert await error_of(connection, batch(b"a") + batch(b"b"), version) is ErrorCode.INVALID_RECORD
            for magic in (0, 1):
                old = build_message_set(legacy_records(b"old"), magic=magic)
                assert await error_of(connection, old, version) is ErrorCode.INVALID_RECORD
        assert plane.partition().log.log_end_offset == 0

    play(talk)


def damaged(records: bytes, position: int, field: str, value: int, *, mend: bool = True) -> bytes:
    """A batch with one field changed, its checksum set right again."""
    data = bytearray(records)
    struct.pack_into(field, data, position, value)
    if mend:
        write_crc(memoryview(data))
    return bytes(data)


ATTRIBUTES, LAST_DELTA, COUNT = 21, 23, 57


@pytest.mark.parametrize(
    ("records", "error"),
    [
        pytest.param(damaged(batch(b"v"), 16, ">b", 3, mend=False), ErrorCode.CORRUPT_MESSAGE, id="magic"),
        pytest.param(damaged(batch(b"v"), 17, ">I", 1, mend=False), ErrorCode.CORRUPT_MESSAGE, id="checksum"),
        pytest.param(batch(b"v", base_offset=7), ErrorCode.INVALID_RECORD, id="base offset"),
        pytest.param(damaged(batch(b"a", b"b"), COUNT, ">i", 0), ErrorCode.INVALID_RECORD, id="no records counted"),
        pytest.param(damaged(batch(b"a", b"b"), COUNT, ">i", 3), ErrorCode.INVALID_RECORD, id="too many counted"),
        pytest.param(damaged(batch(b"a", b"b"), LAST_DELTA, ">i", -1), ErrorCode.INVALID_RECORD, id="last delta"),
        pytest.param(damaged(batch(b"v"), ATTRIBUTES, ">h", 0x20), ErrorCode.INVALID_RECORD, id="control"),
        pytest.param(damaged(batch(b"v"), ATTRIBUTES, ">h", 7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, id="codec"),
        pytest.param(idempotent(5, 0, -1), ErrorCode.INVALID_RECORD, id="sequence"),
        pytest.param(batch(b"v")[:-3], ErrorCode.INVALID_RECORD, id="cut off"),
    ],
)
def test_batches_that_are_refused(records: bytes, error: ErrorCode) -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        assert await error_of(connection, records) is error
        assert plane.partition().log.log_end_offset == 0
        assert await error_of(connection, batch(b"v")) is ErrorCode.NONE

    play(talk, settings=PAGE_CACHE)


def test_zstd_needs_version_7() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        records = batch(b"v" * 100, codec=Compression.ZSTD)
        for version in range(3, LAST):
            expected = ErrorCode.NONE if version >= 7 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            assert await error_of(connection, records, version) is expected

    play(talk)


def test_refusals_of_the_request_as_such() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("__consumer_offsets")
        await plane.create_topic("__transaction_state")
        connection = await plane.connect()
        good = batch(b"v")
        for version in (3, 9, 12):
            assert await error_of(connection, good, version, acks=2) is ErrorCode.INVALID_REQUIRED_ACKS
            assert await error_of(connection, good, version, acks=-2) is ErrorCode.INVALID_REQUIRED_ACKS
            assert await error_of(connection, good, version, index=9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await error_of(connection, good, version, index=-1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for name in ("nothing", "no topic", ""):
                assert await error_of(connection, good, version, topic=name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for name in ("__consumer_offsets", "__transaction_state"):
                assert await error_of(connection, good, version, topic=name) is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert await error_of(connection, good, 13, topic_id=UUID(int=1)) is ErrorCode.UNKNOWN_TOPIC_ID
        assert await error_of(connection, good, 13) is ErrorCode.UNKNOWN_TOPIC_ID
        admin = await plane.connect("__admin_client")
        assert await error_of(admin, good, topic="__consumer_offsets") is ErrorCode.NONE

    play(talk, settings=PAGE_CACHE)


def test_transactional_batches_need_a_transaction() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        records = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
        for version in (3, 9, 12):
            found = await error_of(connection, records, version, transactional_id=None)
            assert found is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            found = await error_of(connection, records, version, transactional_id="unknown")
            assert found is ErrorCode.NOT_ENOUGH_REPLICAS  # there is no coordinator yet
        assert plane.partition().log.log_end_offset == 0

    play(talk)


def test_partitions_fail_on_their_own() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("u")
        connection = await plane.connect()
        topics = [
            ("t", [(0, batch(b"a")), (9, batch(b"b")), (1, batch(b"c", base_offset=1))]),
            ("nothing", [(0, batch(b"d"))]),
            ("u", [(0, batch(b"e"))]),
        ]
        request = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(
                    name=name, partition_data=[PartitionProduceData(index=i, records=data) for i, data in partitions]
                )
                for name, partitions in topics
            ],
        )
        response = await connection.send(request, 9)
        assert [
            (topic.name, partition.index, partition.error_code, partition.base_offset)
            for topic in response.responses
            for partition in topic.partition_responses
        ] == [
            ("t", 0, ErrorCode.NONE, 0),
            ("t", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
            ("t", 1, ErrorCode.INVALID_RECORD, -1),
            ("nothing", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
            ("u", 0, ErrorCode.NONE, 0),
        ]
        assert plane.partition("u").log.high_watermark == 1

    play(talk)


def test_records_at_fault_are_named_since_version_8() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("compacted", cleanup_policy="compact")
        connection = await plane.connect()
        for version in range(3, LAST):
            request = produce(batch(b"a", b"b"), topic="compacted")
            answer = only_produced(await connection.send(request, version))
            assert answer.error_code == ErrorCode.INVALID_RECORD
            assert [error.batch_index for error in answer.record_errors] == ([0, 1] if version >= 8 else [])
            assert bool(answer.error_message) == (version >= 8)
        assert await error_of(connection, batch(b"v", key=b"k"), topic="compacted") is ErrorCode.NONE

    play(talk)


def test_sizes() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("small", max_message_bytes="500", segment_bytes="1048576")
        await plane.create_topic("short", max_message_bytes="4000000", segment_bytes="1048576")
        connection = await plane.connect()
        assert await error_of(connection, batch(b"v" * 500), topic="small") is ErrorCode.MESSAGE_TOO_LARGE
        assert await error_of(connection, batch(b"v" * 400), topic="small") is ErrorCode.NONE
        # What counts is the size as it is stored.
        packed = batch(b"v" * 5000, codec=Compression.GZIP)
        assert await error_of(connection, packed, topic="small") is ErrorCode.NONE
        assert await error_of(connection, batch(b"v" * 2_000_000), topic="short") is ErrorCode.RECORD_LIST_TOO_LARGE
        assert await error_of(connection, batch(b"v" * 1_000_000), topic="short") is ErrorCode.NONE

    play(talk)


def test_append_time() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("stamped", message_timestamp_type="LogAppendTime")
        connection = await plane.connect()
        before = plane.now_ms()
        for version in range(2, LAST):
            magic2 = version >= 3
            records = batch(b"v", timestamp=5) if magic2 else build_message_set(legacy_records(b"v"), magic=1)
            answer = only_produced(await connection.send(produce(records, topic="stamped"), version))
            assert before <= answer.log_append_time_ms <= plane.now_ms()
        data = only_fetched(await connection.send(fetch(at(0), topic="stamped"), 12))
        for stored in iter_batches(bytes(data.records or b"")):
            assert stored.timestamp_type is TimestampType.LOG_APPEND_TIME
            assert before <= next(stored.records()).timestamp <= plane.now_ms()

    play(talk)


def test_timestamps_out_of_bounds() -> None:
    async def talk(plane: DataPlane) -> None:
        limits: dict[str, Any] = {"message_timestamp_before_max_ms": "1000", "message_timestamp_after_max_ms": "1000"}
        await plane.create_topic("fresh", **limits)
        connection = await plane.connect()
        now = plane.now_ms()
        for timestamp, expected in (
            (now - 5000, ErrorCode.INVALID_TIMESTAMP),
            (now, ErrorCode.NONE),
            (now + 5000, ErrorCode.INVALID_TIMESTAMP),
        ):
            assert await error_of(connection, batch(b"v", timestamp=timestamp), topic="fresh") is expected

    play(talk)


def test_what_the_broker_rewrites_and_what_not() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        sent = batch(b"a" * 1000, b"b", timestamp=plane.now_ms(), codec=Compression.LZ4)
        for _ in range(3):
            await connection.send(produce(sent), 9)
        data = bytes(only_fetched(await connection.send(fetch(at(0)), 12)).records or b"")
        stored = [data[i : i + len(sent)] for i in range(0, len(data), len(sent))]
        assert [struct.unpack_from(">q", one)[0] for one in stored] == [0, 2, 4]
        epoch = plane.partition().leader_epoch
        for one in stored:
            assert struct.unpack_from(">i", one, 12) == (epoch,)
            assert (one[8:12], one[16:]) == (sent[8:12], sent[16:])

    play(talk)


# -- acks -----------------------------------------------------------------------------------------------------------


def test_acks_0_is_not_answered() -> None:
    async def talk(plane: DataPlane) -> None:
        client = await plane.raw()
        for number in range(3):
            client.send(ApiKey.PRODUCE, 9, produce(batch(b"quiet"), acks=0), number)
        client.send(ApiKey.PRODUCE, 9, produce(batch(b"loud")), 77)
        correlation_id, response = await client.receive(ApiKey.PRODUCE, 9)
        assert (correlation_id, only_produced(response).base_offset) == (77, 3)

    play(talk)


@pytest.mark.parametrize("wrong", [produce(batch(b"v"), acks=0, topic="nothing"), produce(b"rubbish", acks=0)])
def test_a_failure_with_acks_0_closes_the_connection(wrong: ProduceRequest) -> None:
    async def talk(plane: DataPlane) -> None:
        client = await plane.raw()
        client.send(ApiKey.PRODUCE, 9, produce(batch(b"v")), 1)
        client.send(ApiKey.PRODUCE, 9, wrong, 2)
        client.send(ApiKey.PRODUCE, 9, produce(batch(b"never looked at")), 3)
        correlation_id, _ = await client.receive(ApiKey.PRODUCE, 9)
        assert correlation_id == 1
        assert await client.is_closed()
        assert plane.partition().log.log_end_offset == 1

    play(talk)


def test_acks_all_waits_for_the_disk_and_acks_1_does_not() -> None:
    async def talk(plane: DataPlane) -> None:
        log = plane.partition().log
        began = plane.loop.time()
        assert (await plane.append(batch(b"v"), acks=1)).base_offset == 0
        assert plane.loop.time() - began < 0.02
        assert (log.recovery_point, log.high_watermark) == (0, 1)
        answer = await plane.append(batch(b"v"), acks=-1)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 1)
        assert (log.recovery_point, log.high_watermark) == (2, 2)
        assert plane.loop.time() - began > 0.05

    play(talk, delays=SLOW_DISK)


def test_acks_all_with_the_page_cache_answers_at_once() -> None:
    async def talk(plane: DataPlane) -> None:
        began = plane.loop.time()
        assert (await plane.append(batch(b"v"), acks=-1)).base_offset == 0
        assert plane.loop.time() - began < 0.02
        assert plane.partition().log.recovery_point == 0

    play(talk, delays=SLOW_DISK, settings=PAGE_CACHE)


def test_acks_all_that_is_late_times_out_and_keeps_the_records() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        for timeout_ms in (0, 20):
            began = plane.loop.time()
            response = await connection.send(produce(batch(b"v"), acks=-1, timeout_ms=timeout_ms), 9)
            assert only_produced(response).error_code == ErrorCode.REQUEST_TIMED_OUT
            assert only_produced(response).base_offset == -1
            assert timeout_ms / 1000 <= plane.loop.time() - began < timeout_ms / 1000 + 0.02
        assert plane.state.replica_manager.delayed_operations["Produce"] == 0
        await plane.until(lambda: plane.partition().log.high_watermark == 2)
        assert values_in(only_fetched(await connection.send(fetch(at(0)), 12))) == [b"v", b"v"]

    play(talk, delays=WorkDelays(usual=0, slow_chance=1.0, slow=30.0))


def test_a_request_is_answered_when_the_last_of_its_partitions_is_decided() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        data = [PartitionProduceData(index=index, records=batch(b"v")) for index in (0, 1, 9)]
        request = ProduceRequest(
            acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name="t", partition_data=data)]
        )
        response = await connection.send(request, 9)
        codes = [partition.error_code for partition in response.responses[0].partition_responses]
        assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert [plane.partition("t", index).log.recovery_point for index in (0, 1)] == [1, 1]

    play(talk, delays=SLOW_DISK)


def test_a_topic_deleted_while_a_producer_waits() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("doomed")
        connection = await plane.connect()
        plane.state.replica_manager.group_commit.request(plane.partition())
        waiting = connection.send(produce(batch(b"v"), topic="doomed", acks=-1), 9)
        log = plane.partition("doomed").log
        await plane.until(lambda: log.log_end_offset == 1)
        assert log.high_watermark == 0
        await plane.delete_topic("doomed")
        assert only_produced(await waiting).error_code in (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.NONE,  # the disk may have been faster than the deletion
        )
        assert plane.state.replica_manager.delayed_operations["Produce"] == 0

    play(talk, delays=WorkDelays(usual=2.0))


def test_pipelined_requests_are_answered_in_order_and_one_that_waits_blocks_those_behind_it() -> None:
    async def talk(plane: DataPlane) -> None:
        client = await plane.raw()
        for number in range(1, 30):
            acks = -1 if number % 3 == 0 else 1
            client.send(ApiKey.PRODUCE, 9, produce(batch(b"%d" % number), acks=acks), number)
        for number in range(1, 30):
            correlation_id, response = await client.receive(ApiKey.PRODUCE, 9)
            assert (correlation_id, only_produced(response).base_offset) == (number, number - 1)
            if number % 3 == 0:
                # The requests behind this one were not looked at while it waited for the disk.
                assert plane.partition().log.recovery_point >= number

    play(talk, delays=WorkDelays(usual=0.05))


# -- min.insync.replicas ---------------------------------------------------------------------------------------------


def test_min_insync_replicas_counts_no_more_than_there_are_replicas() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("careful", min_insync_replicas="2")
        assert (await plane.append(batch(b"v"), topic="careful", acks=-1)).error_code == ErrorCode.NONE
        assert plane.partition("careful").log.high_watermark == 1

    play(talk)


def test_too_few_replicas_in_sync() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("careful", min_insync_replicas="2")
        partition = plane.partition("careful")
        partition.replicas = (*partition.replicas, 99)
        answer = await plane.append(batch(b"v"), topic="careful", acks=-1)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        assert partition.log.log_end_offset == 0
        assert (await plane.append(batch(b"v"), topic="careful", acks=1)).base_offset == 0
        assert (partition.log.log_end_offset, partition.log.high_watermark) == (1, 0)

    play(talk)


def test_too_few_replicas_in_sync_after_the_append() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("careful", min_insync_replicas="2")
        partition = plane.partition("careful")
        both = (*partition.replicas, 99)
        partition.replicas = partition.in_sync_replicas = both
        connection = await plane.connect()
        waiting = connection.send(produce(batch(b"v"), topic="careful", acks=-1), 9)
        await plane.until(lambda: partition.log.high_watermark == 0 and partition.log.log_end_offset == 1)
        partition.log.update_high_watermark(1)
        partition.in_sync_replicas = both[:1]
        plane.state.replica_manager.try_complete_delayed_requests(partition)
        answer = only_produced(await waiting)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1)
        assert partition.log.log_end_offset == 1

    play(talk, delays=SLOW_DISK)


# -- who leads ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3, LAST + 1))
def test_a_replica_that_does_not_lead_names_the_leader_since_version_10(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        plane.partition().is_leader = False
        request = produce(batch(b"v"), topic_id=plane.topic_id())
        response = await connection.send(request, version)
        answer = only_produced(response)
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader = answer.current_leader
        if version >= 10:
            broker_id = plane.state.broker_id
            assert (leader.leader_id, leader.leader_epoch) == (broker_id, plane.partition().leader_epoch)
            listener = plane.server.listeners[0]
            assert [(node.node_id, node.host, node.port) for node in response.node_endpoints] == [
                (broker_id, listener.advertised_host, listener.advertised_port)
            ]
        else:
            assert (leader.leader_id, response.node_endpoints) == (-1, [])

    play(talk, settings=PAGE_CACHE)


# -- idempotence ----------------------------------------------------------------------------------------------------


def test_duplicates_within_the_last_five_batches_get_their_first_offset() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()

        async def send(sequence: int, acks: int = -1) -> tuple[int, int]:
            answer = only_produced(await connection.send(produce(idempotent(7, 0, sequence, 2), acks=acks), 9))
            return answer.error_code, answer.base_offset

        for number in range(6):
            assert await send(2 * number) == (ErrorCode.NONE, 2 * number)
        for number in range(1, 6):
            assert await send(2 * number, acks=1 if number % 2 else -1) == (ErrorCode.NONE, 2 * number)
        # The sixth last is forgotten: it cannot be told from a gap any more.
        code, _ = await send(0)
        assert code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        assert (await send(20))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await send(12) == (ErrorCode.NONE, 12)
        assert plane.partition().log.log_end_offset == 14

    play(talk)


def test_a_duplicate_of_what_is_not_on_disk_yet_waits_for_the_disk_too() -> None:
    async def talk(plane: DataPlane) -> None:
        log = plane.partition().log
        first, second = await plane.connect(), await plane.connect()
        waiting = first.send(produce(idempotent(7, 0, 0), acks=-1), 9)
        await plane.until(lambda: log.log_end_offset == 1)
        duplicate = second.send(produce(idempotent(7, 0, 0), acks=-1), 9)
        assert only_produced(await duplicate).base_offset == 0
        assert log.recovery_point == 1
        assert only_produced(await waiting).base_offset == 0
        assert log.log_end_offset == 1

    play(talk, delays=SLOW_DISK)


def test_who_comes_behind_a_batch_that_was_refused_for_now_hears_the_same() -> None:
    async def talk(plane: DataPlane) -> None:
        partition, connection, other = plane.partition(), await plane.connect(), await plane.connect()
        assert await error_of(connection, idempotent(7, 0, 0)) is ErrorCode.NONE
        partition.is_leader = False
        assert await error_of(connection, idempotent(7, 0, 1)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition.is_leader = True
        assert await error_of(other, idempotent(7, 0, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        for sequence in range(2, 2 + FOLLOWING_REQUESTS):
            assert await error_of(connection, idempotent(7, 0, sequence)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await error_of(connection, idempotent(7, 0, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "a real gap"
        for sequence in range(1, 3):
            assert await error_of(connection, idempotent(7, 0, sequence)) is ErrorCode.NONE

    play(talk)


def test_who_comes_behind_its_first_batch_that_was_refused_hears_the_same() -> None:
    """Otherwise the first would be refused for ever, as the partition knows the producer by what came behind."""

    async def talk(plane: DataPlane) -> None:
        partition, connection, other = plane.partition(), await plane.connect(), await plane.connect()
        partition.is_leader = False
        assert await error_of(connection, idempotent(7, 0, 0, 3)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition.is_leader = True
        assert await error_of(connection, idempotent(7, 0, 3)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await error_of(other, idempotent(8, 0, 3)) is ErrorCode.NONE, "of whom nothing was refused"
        assert await error_of(connection, idempotent(8, 0, 4)) is ErrorCode.NONE, "who is known"
        assert await error_of(connection, idempotent(7, 0, 0, 3)) is ErrorCode.NONE
        assert await error_of(connection, idempotent(7, 0, 3)) is ErrorCode.NONE
        assert partition.log.log_end_offset == 6

    play(talk)


def test_a_producer_that_was_forgotten_goes_on_after_a_refusal() -> None:
    async def talk(plane: DataPlane) -> None:
        partition, connection = plane.partition(), await plane.connect()
        partition.is_leader = False
        assert await error_of(connection, idempotent(7, 0, 9)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition.is_leader = True
        heard = [await error_of(connection, idempotent(7, 0, 9)) for _ in range(FOLLOWING_REQUESTS + 1)]
        assert heard == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * FOLLOWING_REQUESTS + [ErrorCode.NONE]

    play(talk)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID])
def test_a_topic_of_which_the_broker_had_not_heard_counts_as_refused_for_now(code: ErrorCode) -> None:
    before, error = SequenceGapGuard(), KafkaError(code)
    assert before.record_result(("t", 0), error) is error
    assert before.record_result(("t", 0), KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)) is error


def test_what_was_refused_before_is_bounded() -> None:
    before, error = SequenceGapGuard(), KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    for index in range(MAX_PARTITIONS + 10):
        assert before.record_result(("t", index), error) is error
    gap = KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert before.record_result(("t", 9), gap) is gap
    assert before.record_result(("t", 10), gap) is error


def test_topics_whose_names_are_too_long_to_be_made_are_not_remembered() -> None:
    """A client may ask for a thousand names of 32 KB on each of its connections."""
    before, error = SequenceGapGuard(), KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for name in ("n" * LONGEST_NAME, "n" * (LONGEST_NAME + 1)):
        assert before.record_result((name, 0), error) is error
    assert len(before) == 1


def test_epochs_of_producers() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        assert await error_of(connection, idempotent(7, 3, 10)) is ErrorCode.NONE
        assert await error_of(connection, idempotent(7, 2, 11)) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await error_of(connection, idempotent(7, 4, 11)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await error_of(connection, idempotent(7, 4, 0)) is ErrorCode.NONE
        assert await error_of(connection, idempotent(8, 0, 2**31 - 1)) is ErrorCode.NONE
        assert await error_of(connection, idempotent(8, 0, 0)) is ErrorCode.NONE

    play(talk)


@pytest.mark.parametrize("clean", [True, False])
def test_the_newest_batch_is_known_after_a_restart(clean: bool) -> None:
    async def talk(plane: DataPlane) -> None:
        for sequence in range(3):
            await plane.append(idempotent(7, 0, sequence), acks=-1)
        if clean:
            await plane.world.broker.stop()
        else:
            plane.world.broker.crash("A")
        await plane.world.broker.start()
        connection = await plane.connect()
        response = await connection.send(produce(idempotent(7, 0, 2), acks=-1), 9)
        assert (only_produced(response).error_code, only_produced(response).base_offset) == (ErrorCode.NONE, 2)
        assert await error_of(connection, idempotent(7, 0, 4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await error_of(connection, idempotent(7, 0, 3)) is ErrorCode.NONE

    play(talk)


def test_an_answer_can_be_asked_for_by_topic_id_and_names_it() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        await plane.create_topic("other")
        known, other, unknown = plane.topic_id(), plane.topic_id("other"), UUID(int=5)
        request = produce(batch(b"v"), topic_id=known)
        nothing = [PartitionProduceData(index=index) for index in range(2)]
        some = [PartitionProduceData(index=index, records=batch(b"v")) for index in (0, 9)]
        request.topic_data += [
            TopicProduceData(topic_id=unknown, partition_data=nothing),
            TopicProduceData(topic_id=other, partition_data=some),
        ]
        response = await connection.send(request, 13)
        assert [
            (topic.topic_id, [partition.error_code for partition in topic.partition_responses])
            for topic in response.responses
        ] == [
            (known, [ErrorCode.NONE]),
            (unknown, [ErrorCode.UNKNOWN_TOPIC_ID] * 2),
            (other, [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        ]

    play(talk)


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", [2, 9, 13])
def test_a_mistake_in_one_partition_is_not_that_of_the_others(
    monkeypatch: pytest.MonkeyPatch, acks: int, version: int
) -> None:
    append, read = Partition.append_records_to_leader, Partition.read

    def mistaken(usual: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Partition, *args: Any, **options: Any) -> Any:
            if self.topic_partition.partition == 0:
                raise ValueError("a mistake")
            return usual(self, *args, **options)

        return call

    async def talk(plane: DataPlane) -> None:
        monkeypatch.setattr(Partition, "append_records_to_leader", mistaken(append))
        monkeypatch.setattr(Partition, "read", mistaken(read))
        connection = await plane.connect()
        request = produce(None, topic_id=plane.topic_id(), acks=acks)
        records = build_message_set(legacy_records(b"v"), magic=1) if version < 3 else batch(b"v")
        data = [PartitionProduceData(index=index, records=records) for index in (0, 1)]
        request.topic_data[0].partition_data = data
        response = await connection.send(request, version)
        answers = [(one.error_code, one.base_offset) for one in response.responses[0].partition_responses]
        assert answers == [(ErrorCode.UNKNOWN_SERVER_ERROR, -1), (ErrorCode.NONE, 0)]
        assert plane.server.apis.failures == 1
        answer = await connection.send(fetch(at(0), at(0, index=1)), 12)
        assert [one.error_code for one in answer.responses[0].partitions] == [ErrorCode.UNKNOWN_SERVER_ERROR, 0]
        assert values_in(answer.responses[0].partitions[1]) == [b"v"]
        assert plane.server.apis.failures == 2

    play(talk)
