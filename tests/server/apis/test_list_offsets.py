"""ListOffsets: the ends of a log, records by time, special timestamps, bounds of what a reader may see."""

from __future__ import annotations

import asyncio

import pytest
from tests.server.data_plane import PAGE_CACHE, DataPlane, batch, play, produce
from tests.server.partition_states import next_order

from barnabas.clients.connection import BrokerConnection
from barnabas.protocol.compression import Compression
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.record_batch_builder import ControlType, RecordBatchBuilder, control_batch
from barnabas.server.replication.append_request import AppendRequest
from barnabas.simulation.machines import START_MS, WorkDelays
from barnabas.storage.log_validator import CLIENT_RULES, COORDINATOR_RULES

LAST = 11
LATEST, EARLIEST, MAX, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -1, -2, -3, -4, -5, -6


def ask(
    *timestamps: int, topic: str = "t", index: int = 0, isolation: int = 0, replica: int = -1, epoch: int = -1
) -> ListOffsetsRequest:
    """One request about one partition, or about several of them in a row."""
    wanted = [
        ListOffsetsPartition(partition_index=index + number, timestamp=timestamp, current_leader_epoch=epoch)
        for number, timestamp in enumerate(timestamps)
    ]
    return ListOffsetsRequest(
        replica_id=replica, isolation_level=isolation, topics=[ListOffsetsTopic(name=topic, partitions=wanted)]
    )


async def answer(
    connection: BrokerConnection, version: int, request: ListOffsetsRequest
) -> ListOffsetsPartitionResponse:
    response = await connection.send(request, version)
    ((partition,),) = (topic.partitions for topic in response.topics)
    assert isinstance(partition, ListOffsetsPartitionResponse)
    return partition


async def old_style(connection: BrokerConnection, timestamp: int, most: int = 10, **options: str) -> list[int]:
    """What version 0 answers."""
    request = ask(timestamp, **options)  # type: ignore[arg-type]
    request.topics[0].partitions[0].max_num_offsets = most
    return (await answer(connection, 0, request)).old_style_offsets


async def find(connection: BrokerConnection, timestamp: int, version: int = 7, **options: int) -> tuple[int, int, int]:
    """(error, offset, timestamp)"""
    found = await answer(connection, version, ask(timestamp, **options))  # type: ignore[arg-type]
    return found.error_code, found.offset, found.timestamp


def stamped(*timestamps: int, codec: Compression = Compression.NONE) -> bytes:
    builder = RecordBatchBuilder(codec=codec)
    for timestamp in timestamps:
        builder.append(None, b"v", timestamp=timestamp)
    return builder.build()


@pytest.mark.parametrize("version", range(1, LAST + 1))
def test_the_ends_in_every_version(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        assert await find(connection, LATEST, version) == (ErrorCode.NONE, 0, -1)
        assert await find(connection, EARLIEST, version) == (ErrorCode.NONE, 0, -1)
        for _ in range(5):
            await connection.send(produce(batch(b"a", b"b")), 9)
        plane.partition().delete_records(3)
        for timestamp, offset in ((LATEST, 10), (EARLIEST, 3)):
            found = await answer(connection, version, ask(timestamp))
            assert (found.error_code, found.offset, found.timestamp) == (ErrorCode.NONE, offset, -1)
            assert found.leader_epoch == (plane.partition().leader_epoch if version >= 4 else -1)

    play(talk, settings=PAGE_CACHE)


@pytest.mark.parametrize("version", range(1, LAST + 1))
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_the_first_record_not_older_than_a_time(version: int, codec: Compression) -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        # Not in order, several to a batch, with a time that comes twice.
        for times in ((100, 105, 103), (103, 110), (90, 120, 115)):
            moments = [START_MS + time for time in times]
            await connection.send(produce(stamped(*moments, codec=codec)), 9)
        for time, offset, found in (
            (0, 0, 100),
            (100, 0, 100),
            (101, 1, 105),
            (105, 1, 105),
            (106, 4, 110),
            (111, 6, 120),
        ):
            expected = (ErrorCode.NONE, offset, START_MS + found)
            assert await find(connection, START_MS + time, version) == expected, time
        assert await find(connection, 0, version) == (ErrorCode.NONE, 0, START_MS + 100)
        assert await find(connection, START_MS + 121, version) == (ErrorCode.NONE, -1, -1)
        plane.partition().delete_records(5)
        assert await find(connection, 0, version) == (ErrorCode.NONE, 5, START_MS + 90)

    play(talk, settings=PAGE_CACHE)


@pytest.mark.parametrize("version", range(1, LAST + 1))
def test_special_times_and_the_versions_that_know_them(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        await connection.send(produce(stamped(START_MS, START_MS + 9, START_MS + 5)), 9)
        for timestamp, since, offset, time in (
            (MAX, 7, 1, START_MS + 9),
            (EARLIEST_LOCAL, 8, 0, -1),
            (LATEST_TIERED, 9, -1, -1),
            (PENDING_UPLOAD, 11, -1, -1),
            (-7, LAST + 1, -1, -1),
            (-(2**63), LAST + 1, -1, -1),
        ):
            if version >= since:
                assert await find(connection, timestamp, version) == (ErrorCode.NONE, offset, time)
            else:
                assert await find(connection, timestamp, version) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1)

    play(talk, settings=PAGE_CACHE)


def test_an_empty_log_has_no_largest_timestamp() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        assert await find(connection, MAX) == (ErrorCode.NONE, -1, -1)
        assert await find(connection, 0) == (ErrorCode.NONE, -1, -1)

    play(talk, settings=PAGE_CACHE)


def test_what_is_not_on_disk_yet_is_hidden() -> None:
    async def talk(plane: DataPlane) -> None:
        connection, writer = await plane.connect(), await plane.connect()
        log = plane.partition().log
        waiting = writer.send(produce(stamped(START_MS), acks=-1), 9)
        await plane.until(lambda: log.log_end_offset == 1)
        assert await find(connection, LATEST) == (ErrorCode.NONE, 0, -1)
        assert await find(connection, MAX) == (ErrorCode.NONE, -1, -1)
        assert await find(connection, 0) == (ErrorCode.NONE, -1, -1)
        assert await old_style(connection, LATEST) == [0]
        # Replicas, and tools that pretend to be one, see everything.
        for replica in (-2, 1):
            assert await find(connection, LATEST, replica=replica) == (ErrorCode.NONE, 1, -1)
        assert log.recovery_point == 0
        await waiting
        assert await find(connection, LATEST) == (ErrorCode.NONE, 1, -1)

    play(talk, delays=WorkDelays(usual=2.0))


def test_isolation() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.append(stamped(START_MS))
        partition = plane.partition()
        records = batch(
            b"open", timestamp=START_MS + 1, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        partition.append_records_to_leader(memoryview(bytearray(records)), AppendRequest(1, 0, print, CLIENT_RULES))
        await plane.append(stamped(START_MS + 2))
        connection = await plane.connect()
        for version in range(1, LAST + 1):
            committed = 1 if version >= 2 else 0
            assert await find(connection, LATEST, version, isolation=committed) == (0, 1 if committed else 3, -1)
            assert await find(connection, LATEST, version) == (0, 3, -1)
        assert await find(connection, START_MS + 2, isolation=1) == (0, -1, -1)
        assert await find(connection, START_MS + 2) == (0, 2, START_MS + 2)
        marker = control_batch(
            ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=START_MS
        )
        partition.append_records_to_leader(memoryview(bytearray(marker)), AppendRequest(1, 0, print, COORDINATOR_RULES))
        assert await find(connection, LATEST, isolation=1) == (0, 4, -1)

    play(talk, settings=PAGE_CACHE)


def test_version_0_answers_segment_starts_newest_first() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        log = plane.partition().log
        assert await old_style(connection, LATEST) == [0]
        for _ in range(3):
            await connection.send(produce(batch(b"a", b"b")), 9)
            await asyncio.sleep(100)
            log.roll()
        await connection.send(produce(batch(b"c")), 9)
        assert await old_style(connection, LATEST) == [7, 6, 4, 2, 0]
        assert await old_style(connection, LATEST, most=1) == [7]
        assert await old_style(connection, LATEST, most=0) == []
        assert await old_style(connection, EARLIEST) == [0]
        assert await old_style(connection, START_MS - 1) == []
        assert await old_style(connection, plane.now_ms() - 150_000) == [2, 0]
        assert await old_style(connection, 0, topic="nothing") == []

    play(talk, settings=PAGE_CACHE)


def test_version_0_hides_what_is_not_on_disk() -> None:
    async def talk(plane: DataPlane) -> None:
        connection, writer = await plane.connect(), await plane.connect()
        log = plane.partition().log
        for _ in range(2):
            await connection.send(produce(batch(b"a", b"b")), 9)
            log.roll()
        writer.send(produce(batch(b"c"), acks=-1), 9)
        await plane.until(lambda: log.log_end_offset == 5)
        log.roll()
        await connection.send(produce(batch(b"d")), 9)
        assert await old_style(connection, LATEST) == [4, 2, 0]
        await plane.until(lambda: log.high_watermark == 6)
        assert await old_style(connection, LATEST) == [6, 5, 4, 2, 0]

    play(talk, delays=WorkDelays(usual=2.0))


@pytest.mark.parametrize("version", range(LAST + 1))
def test_partitions_that_cannot_be_asked(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.append(batch(b"v"))
        connection = await plane.connect()
        request = ask(LATEST, LATEST, LATEST)
        twice = ListOffsetsPartition(partition_index=1, timestamp=LATEST)
        request.topics[0].partitions.append(twice)
        request.topics += ask(LATEST, topic="nothing").topics
        response = await connection.send(request, version)
        codes = [[partition.error_code for partition in topic.partitions] for topic in response.topics]
        assert codes == [
            [
                ErrorCode.NONE,
                ErrorCode.INVALID_REQUEST,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.INVALID_REQUEST,
            ],
            [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        ]
        plane.partition().is_leader = False
        assert (await answer(connection, version, ask(LATEST))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(talk, settings=PAGE_CACHE)


@pytest.mark.parametrize("version", range(4, LAST + 1))
def test_readers_with_another_leader_epoch_are_fenced(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        partition = plane.partition()
        partition.become_leader(next_order(partition, partition.leader_epoch + 2))
        connection = await plane.connect()
        for epoch, expected in (
            (-1, ErrorCode.NONE),
            (partition.leader_epoch, ErrorCode.NONE),
            (partition.leader_epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
            (partition.leader_epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            assert (await answer(connection, version, ask(LATEST, epoch=epoch))).error_code == expected

    play(talk, settings=PAGE_CACHE)


def test_times_across_segments() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        log = plane.partition().log
        for number in range(6):
            await connection.send(produce(stamped(START_MS + 10 * number, START_MS + 10 * number + 5)), 9)
            if number % 2:
                log.roll()
        for number in range(6):
            expected = (ErrorCode.NONE, 2 * number + 1, START_MS + 10 * number + 5)
            assert await find(connection, START_MS + 10 * number + 1) == expected
        assert await find(connection, MAX) == (ErrorCode.NONE, 11, START_MS + 55)

    play(talk, settings=PAGE_CACHE)
