"""Fetch: limits, waiting, bounds of what a reader may see, old formats, leader epochs, readers that go away."""

from __future__ import annotations

import asyncio
import gc
from typing import Any
from uuid import UUID

import pytest
from tests.server.data_plane import (
    PAGE_CACHE,
    DataPlane,
    at,
    batch,
    fetch,
    fetched,
    legacy_records,
    only_fetched,
    only_produced,
    play,
    produce,
    values_in,
)
from tests.server.network.open_connections import open_connections
from tests.server.partition_states import next_order

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.compression import Compression
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.legacy_records import build_message_set
from barnabas.protocol.messages.fetch import FetchTopic, ForgottenTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.record_batch import iter_batches
from barnabas.protocol.record_batch_builder import ControlType, control_batch
from barnabas.server.apis.handlers.fetch import MAX_CONVERTED_BYTES
from barnabas.server.apis.kafka_apis import LARGE_REQUEST_BYTES
from barnabas.server.replication import replica_manager
from barnabas.server.replication.append_request import AppendRequest
from barnabas.server.replication.delayed_fetch import FetchedPartition
from barnabas.simulation.disk import DiskFault
from barnabas.simulation.machines import WorkDelays
from barnabas.storage.errors import CorruptIndexError
from barnabas.storage.log import Log
from barnabas.storage.log_validator import CLIENT_RULES, COORDINATOR_RULES
from barnabas.storage.log_values import FetchData
from barnabas.storage.transaction_index import AbortedTxn, TransactionIndex

LAST = 18
SLOW_DISK = WorkDelays(usual=2.0)


def append_control(plane: DataPlane, producer_id: int, kind: ControlType, *, topic: str = "t", index: int = 0) -> None:
    marker = control_batch(kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=1)
    partition = plane.partition(topic, index)
    partition.append_records_to_leader(memoryview(bytearray(marker)), AppendRequest(1, 0, print, COORDINATOR_RULES))


def append_transactional(plane: DataPlane, producer_id: int, *values: bytes, topic: str = "t", index: int = 0) -> None:
    records = batch(
        *values, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True, timestamp=1
    )
    partition = plane.partition(topic, index)
    partition.append_records_to_leader(memoryview(bytearray(records)), AppendRequest(1, 0, print, CLIENT_RULES))


@pytest.mark.parametrize("version", range(LAST + 1))
def test_every_version(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        for value in (b"a", b"b"):
            await connection.send(produce(batch(value, b"x")), 9)
        for offset, expected in ((0, [b"a", b"x", b"b", b"x"]), (2, [b"b", b"x"])):
            response = await connection.send(fetch(at(offset), topic_id=plane.topic_id()), version)
            assert response.responses[0].topic == ("t" if version < 13 else "")
            assert version < 13 or response.responses[0].topic_id == plane.topic_id()
            data = only_fetched(response)
            assert (data.error_code, data.high_watermark) == (ErrorCode.NONE, 4)
            assert data.last_stable_offset == (4 if version >= 4 else -1)
            assert data.log_start_offset == (0 if version >= 5 else -1)
            assert data.aborted_transactions is None or version < 4
            assert values_in(data) == expected
            magics = {one.magic for one in iter_batches(bytes(data.records or b""))}
            assert magics == {0 if version < 2 else 1 if version < 4 else 2}

    play(talk, settings=PAGE_CACHE)


# -- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 4, 11, 12])
def test_one_whole_batch_however_small_the_limits(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        for value in (b"a" * 2000, b"b" * 2000):
            await connection.send(produce(batch(value)), 9)
            await connection.send(produce(batch(value), index=1), 9)
        for request in (
            fetch(at(0, max_bytes=1), at(0, 1, max_bytes=1)),
            fetch(at(0), at(0, 1), max_bytes=1),
            fetch(at(0, max_bytes=0), at(0, 1, max_bytes=0), max_bytes=0),
        ):
            answers = fetched(await connection.send(request, version))
            assert (values_in(answers[0]), values_in(answers[1])) == ([b"a" * 2000], [])
        # The first partition that has something, not the first one.
        answers = fetched(await connection.send(fetch(at(2), at(0, 1), max_bytes=1), version))
        assert (values_in(answers[0]), values_in(answers[1])) == ([], [b"a" * 2000])

    play(talk, settings=PAGE_CACHE)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_readers_get_the_beginning_of_a_message_too_large_for_their_limit(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        await connection.send(produce(batch(b"a" * 2000)), 9)
        data = only_fetched(await connection.send(fetch(at(0, max_bytes=500)), version))
        cut = bytes(data.records or b"")
        assert 12 <= len(cut) <= 500
        assert int.from_bytes(cut[8:12], "big") > 500, "a reader must see that its limit is too low"
        data = only_fetched(await connection.send(fetch(at(0, max_bytes=5000)), version))
        assert values_in(data) == [b"a" * 2000]

    play(talk, settings=PAGE_CACHE)


@pytest.mark.parametrize("version", range(LAST + 1))
def test_a_batch_that_does_not_fit_is_not_given_in_part(version: int) -> None:
    """Kafka's firstEntryIncomplete: a reader that finds a part of a batch, and nothing else, gives up."""

    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        values = [b"%d" % index * 2000 for index in range(2)]
        for index, value in enumerate(values):
            await connection.send(produce(batch(value), index=index), 9)
        size = len(batch(values[0]))
        for wanted, whole in (
            ((at(0, 0, max_bytes=500), at(0, 1, max_bytes=500)), 0),
            ((at(0, 1, max_bytes=size - 1), at(0, 0, max_bytes=size - 1)), 1),
            ((at(0, 0), at(0, 1, max_bytes=100)), 0),
        ):
            answers = fetched(await connection.send(fetch(*wanted, topic_id=plane.topic_id()), version))
            other = answers[1 - whole]
            assert (other.error_code, other.high_watermark) == (ErrorCode.NONE, 1)
            if version < 3:
                cut = bytes(other.records or b"")
                assert cut and int.from_bytes(cut[8:12], "big") > len(cut), "old readers see that a limit is too low"
            else:
                assert values_in(answers[whole]) == [values[whole]]
                assert other.records is not None and not len(other.records)
        # The limit of the whole answer, where each partition's own is large enough.
        if version >= 3:
            request = fetch(at(0), at(0, 1), max_bytes=size + 100, topic_id=plane.topic_id())
            answers = fetched(await connection.send(request, version))
            assert (values_in(answers[0]), answers[1].records) == ([values[0]], b"")

    play(talk, settings=PAGE_CACHE)


@pytest.mark.parametrize("length", [-100, -12, 0, 13, 2**31 - 1])
@pytest.mark.parametrize("version", [0, 3, 4, LAST])
def test_a_damaged_length_on_disk_is_told_for_its_partition_alone(version: int, length: int) -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        for index in (0, 1):
            for value in (b"a", b"b"):
                await connection.send(produce(batch(value), index=index), 9)
        segment = plane.partition().log.active_segment
        damage = length.to_bytes(4, "big", signed=True)
        plane.world.broker.disk.overwrite(segment.records.path, len(batch(b"a")) + 8, damage)
        request = fetch(at(1, max_bytes=1000), at(1, 1), topic_id=plane.topic_id())
        answers = fetched(await connection.send(request, version))
        assert answers[0].error_code == ErrorCode.CORRUPT_MESSAGE and not answers[0].records
        assert answers[1].error_code == ErrorCode.NONE and values_in(answers[1]) == [b"b"]

    play(talk, settings=PAGE_CACHE)


def test_bytes_go_to_partitions_in_the_order_of_the_request() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        for index in (0, 1):
            for _ in range(3):
                await connection.send(produce(batch(b"v" * 1000), index=index), 9)
        size = len(batch(b"v" * 1000))
        for first, second in ((0, 1), (1, 0)):
            response = await connection.send(fetch(at(0, first), at(0, second), max_bytes=4 * size), 11)
            answers = fetched(response)
            assert list(answers) == [first, second]
            assert [len(answers[i].records or b"") for i in (first, second)] == [3 * size, size]
        # A limit of its own for each partition.
        response = await connection.send(fetch(at(0, 0, max_bytes=size), at(0, 1)), 11)
        assert [len(data.records or b"") for data in fetched(response).values()] == [size, 3 * size]

    play(talk, settings=PAGE_CACHE)


def test_the_brokers_own_limit_holds_too() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        for _ in range(4):
            await connection.send(produce(batch(b"v" * 1000)), 9)
        data = only_fetched(await connection.send(fetch(at(0)), 11))
        assert len(data.records or b"") == 2048

    play(talk, settings={**PAGE_CACHE, "fetch.max.bytes": "2048"})


def test_a_batch_is_given_whole_from_its_start() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        await connection.send(produce(batch(b"a", b"b", b"c")), 9)
        data = only_fetched(await connection.send(fetch(at(2)), 12))
        assert values_in(data) == [b"a", b"b", b"c"]

    play(talk, settings=PAGE_CACHE)


# -- waiting --------------------------------------------------------------------------------------------------------


def test_nothing_there_is_answered_when_the_wait_is_over() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        for wait_ms in (0, 300):
            began = plane.loop.time()
            data = only_fetched(await connection.send(fetch(at(0), max_wait_ms=wait_ms), 12))
            assert (data.error_code, values_in(data)) == (ErrorCode.NONE, [])
            assert wait_ms / 1000 <= plane.loop.time() - began < wait_ms / 1000 + 0.05
        assert plane.state.replica_manager.delayed_operations["Fetch"] == 0

    play(talk, settings=PAGE_CACHE)


def test_what_is_answered_at_once_however_long_the_wait() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        await connection.send(produce(batch(b"v")), 9)
        for request in (
            fetch(at(1), max_wait_ms=60_000, min_bytes=0),
            fetch(max_wait_ms=60_000),
            fetch(at(0), max_wait_ms=60_000),
            fetch(at(1), at(0, 9), max_wait_ms=60_000),
            fetch(at(7), at(0, 1), max_wait_ms=60_000),
            fetch(at(0), max_wait_ms=60_000, min_bytes=5000, max_bytes=10),
            fetch(at(1, last_fetched_epoch=5), max_wait_ms=60_000),
        ):
            began = plane.loop.time()
            await connection.send(request, 12)
            assert plane.loop.time() - began < 0.05, request

    play(talk, settings=PAGE_CACHE)


def test_an_append_wakes_a_reader() -> None:
    async def talk(plane: DataPlane) -> None:
        reader, writer = await plane.connect(), await plane.connect()
        waiting = reader.send(fetch(at(0), at(0, 1), max_wait_ms=60_000), 12)
        await plane.until(lambda: plane.state.replica_manager.delayed_operations["Fetch"] == 1)
        began = plane.loop.time()
        await writer.send(produce(batch(b"v"), index=1), 9)
        answers = fetched(await waiting)
        assert plane.loop.time() - began < 0.05
        assert (values_in(answers[0]), values_in(answers[1])) == ([], [b"v"])
        assert answers[1].high_watermark == 1
        assert plane.state.replica_manager.delayed_operations["Fetch"] == 0

    play(talk, settings=PAGE_CACHE)


def test_min_bytes_is_a_sum_over_partitions_each_up_to_its_limit() -> None:
    async def talk(plane: DataPlane) -> None:
        reader, writer = await plane.connect(), await plane.connect()
        records = batch(b"v" * 1000)
        wanted = [at(0, 0, max_bytes=len(records)), at(0, 1)]
        waiting = reader.send(fetch(*wanted, max_wait_ms=60_000, min_bytes=2 * len(records)), 12)
        for _ in range(3):
            await writer.send(produce(records), 9)
        await asyncio.sleep(5)
        assert not waiting.done(), "the first partition can give no more than its limit"
        await writer.send(produce(records, index=1), 9)
        answers = fetched(await waiting)
        assert [len(values_in(data)) for data in answers.values()] == [1, 1]

    play(talk, settings=PAGE_CACHE)


def test_after_a_wait_only_what_has_changed_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of hundreds of partitions that a follower waits for, one has news."""

    async def talk(plane: DataPlane) -> None:
        reader, manager = await plane.connect(), plane.state.replica_manager
        waiting = reader.send(fetch(at(0), at(0, 1), max_wait_ms=60_000, min_bytes=1), 12)
        await plane.until(lambda: manager.delayed_operations["Fetch"] == 1)
        read: list[int] = []
        again = manager._read_partition

        def note(topic: str, wanted: Any, *rest: Any, **options: Any) -> Any:
            read.append(wanted.partition)
            return again(topic, wanted, *rest, **options)

        monkeypatch.setattr(manager, "_read_partition", note)
        await plane.append(batch(b"v"), index=1)
        answered = fetched(await asyncio.wait_for(waiting, 5))
        assert {index: values_in(data) for index, data in answered.items()} == {0: [], 1: [b"v"]}
        assert read == [1]

    play(talk, settings=PAGE_CACHE)


def with_records() -> list[FetchedPartition]:
    """All that this process holds."""
    return [one for one in gc.get_objects() if isinstance(one, FetchedPartition) and one.records]


def test_what_was_read_is_not_held_while_more_is_waited_for() -> None:
    async def talk(plane: DataPlane) -> None:
        of_other_tests = with_records()
        reader, writer = await plane.connect(), await plane.connect()
        await writer.send(produce(batch(b"v" * 1000)), 9)
        waiting = reader.send(fetch(at(0), max_wait_ms=60_000, min_bytes=100_000), 12)
        await plane.until(lambda: plane.state.replica_manager.delayed_operations["Fetch"] == 1)
        assert not [one for one in with_records() if all(one is not other for other in of_other_tests)]
        assert values_in(only_fetched(await waiting)) == [b"v" * 1000]

    play(talk, settings=PAGE_CACHE)


def test_a_log_that_rolls_wakes_a_reader_of_the_old_segment() -> None:
    async def talk(plane: DataPlane) -> None:
        reader, writer = await plane.connect(), await plane.connect()
        await writer.send(produce(batch(b"a")), 9)
        waiting = reader.send(fetch(at(0), max_wait_ms=60_000, min_bytes=100_000), 12)
        await plane.until(lambda: plane.state.replica_manager.delayed_operations["Fetch"] == 1)
        plane.partition().log.roll()
        await writer.send(produce(batch(b"b")), 9)
        assert values_in(only_fetched(await asyncio.wait_for(waiting, 5))) == [b"a"]

    play(talk, settings=PAGE_CACHE)


def test_records_are_not_seen_before_they_are_on_disk() -> None:
    async def talk(plane: DataPlane) -> None:
        reader, writer = await plane.connect(), await plane.connect()
        log = plane.partition().log
        produced = writer.send(produce(batch(b"safe"), acks=-1), 9)
        await plane.until(lambda: log.log_end_offset == 1)
        data = only_fetched(await reader.send(fetch(at(0)), 12))
        assert (log.recovery_point, data.error_code, data.high_watermark, values_in(data)) == (0, 0, 0, [])
        # The same for an offset between high watermark and log end: neither an error nor data.
        assert only_fetched(await reader.send(fetch(at(1)), 12)).error_code == ErrorCode.NONE
        data = only_fetched(await reader.send(fetch(at(0), max_wait_ms=60_000), 12))
        assert (log.recovery_point, data.high_watermark, values_in(data)) == (1, 1, [b"safe"])
        assert only_produced(await produced).error_code == ErrorCode.NONE

    play(talk, delays=SLOW_DISK)


def test_records_of_acks_1_behind_those_that_wait_for_the_disk_wait_with_them() -> None:
    async def talk(plane: DataPlane) -> None:
        reader, writer, other = [await plane.connect() for _ in range(3)]
        log = plane.partition().log
        await writer.send(produce(batch(b"first")), 9)
        safe = writer.send(produce(batch(b"safe"), acks=-1), 9)
        await plane.until(lambda: log.log_end_offset == 2)
        await other.send(produce(batch(b"quick")), 9)
        assert values_in(only_fetched(await reader.send(fetch(at(0)), 12))) == [b"first"]
        await safe
        assert values_in(only_fetched(await reader.send(fetch(at(0)), 12))) == [b"first", b"safe", b"quick"]

    play(talk, delays=SLOW_DISK)


def test_a_topic_deleted_under_a_waiting_reader() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("doomed")
        reader = await plane.connect()
        waiting = reader.send(fetch(at(0), topic="doomed", max_wait_ms=60_000), 12)
        await plane.until(lambda: plane.state.replica_manager.delayed_operations["Fetch"] == 1)
        began = plane.loop.time()
        await plane.delete_topic("doomed")
        data = only_fetched(await waiting)
        assert data.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert plane.loop.time() - began < 5

    play(talk, settings=PAGE_CACHE)


@pytest.mark.parametrize("most_at_once", [replica_manager.READ_PARTITIONS_PER_TURN, 1])
@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_reader_that_goes_away_leaves_no_watcher(
    how: str, most_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does one of more partitions than are read in one turn."""

    async def talk(plane: DataPlane) -> None:
        purgatory = plane.state.replica_manager._fetch_purgatory
        client = await plane.raw()
        client.send(ApiKey.FETCH, 12, fetch(at(0), at(0, 1), max_wait_ms=60_000))
        await plane.until(lambda: len(purgatory) == 1)
        if how == "close":
            client.writer.close()
        else:
            client.writer.transport.abort()
        await plane.until(lambda: len(purgatory) == 0, seconds=5)
        assert not purgatory.watchers
        await plane.append(batch(b"v"))

    monkeypatch.setattr(replica_manager, "READ_PARTITIONS_PER_TURN", most_at_once)
    play(talk, settings=PAGE_CACHE)


@pytest.mark.parametrize("most_at_once", [replica_manager.READ_PARTITIONS_PER_TURN, 1])
def test_a_reader_that_is_gone_before_its_request_is_read_leaves_no_watcher(
    most_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def talk(plane: DataPlane) -> None:
        purgatory, sockets = plane.state.replica_manager._fetch_purgatory, plane.server.sockets
        connections = open_connections(sockets)
        client = await plane.raw()
        await plane.until(lambda: open_connections(sockets) > connections)
        long = [ForgottenTopic(topic="t", partitions=[7] * LARGE_REQUEST_BYTES)]
        client.send(ApiKey.FETCH, 12, fetch(at(0), at(0, 1), max_wait_ms=60_000, forgotten_topics_data=long))
        await client.writer.drain()
        client.writer.close()
        await plane.until(lambda: open_connections(sockets) == connections)
        await asyncio.sleep(30)
        assert not purgatory.watchers

    monkeypatch.setattr(replica_manager, "READ_PARTITIONS_PER_TURN", most_at_once)
    play(talk, settings=PAGE_CACHE, delays=SLOW_DISK)


def test_a_fetch_that_waits_blocks_what_is_behind_it_on_its_connection_alone() -> None:
    async def talk(plane: DataPlane) -> None:
        client = await plane.raw()
        client.send(ApiKey.FETCH, 12, fetch(at(0), max_wait_ms=2000), 1)
        client.send(ApiKey.PRODUCE, 9, produce(batch(b"behind")), 2)
        await plane.until(lambda: plane.state.replica_manager.delayed_operations["Fetch"] == 1)
        await asyncio.sleep(1)
        assert plane.partition().log.log_end_offset == 0
        await plane.append(batch(b"beside"))
        correlation_id, response = await client.receive(ApiKey.FETCH, 12)
        assert (correlation_id, values_in(only_fetched(response))) == (1, [b"beside"])
        correlation_id, produced = await client.receive(ApiKey.PRODUCE, 9)
        assert (correlation_id, only_produced(produced).base_offset) == (2, 1)

    play(talk, settings=PAGE_CACHE)


def test_a_reader_waiting_on_a_directory_that_cannot_be_read_does_no_harm_to_producers() -> None:
    async def talk(plane: DataPlane) -> None:
        for _ in range(3):
            await plane.append(batch(b"v" * 100))
        broken, sound = plane.partition("t", 0), plane.partition("t", 1)
        assert broken.log.directory != sound.log.directory
        reader, writer = await plane.connect(), await plane.connect()
        waiting = reader.send(fetch(at(1), at(0, 1), max_wait_ms=60_000, min_bytes=100_000), 12)
        await plane.until(lambda: plane.state.replica_manager.delayed_operations["Fetch"] == 1)
        plane.world.broker.disk.faults.append(DiskFault("pread", 5, path_contains=broken.log.path))
        answer = only_produced(await writer.send(produce(batch(b"v"), index=1), 9))
        assert answer.error_code == ErrorCode.NONE
        answers = fetched(await waiting)
        assert answers[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert values_in(answers[1]) == [b"v"]
        assert (broken.is_offline, sound.is_offline) == (True, False)

    play(talk, settings={**PAGE_CACHE, "log.dirs": "/data,/data2"})


# -- what may be seen -----------------------------------------------------------------------------------------------


def test_offsets_out_of_range() -> None:
    async def talk(plane: DataPlane) -> None:
        for _ in range(4):
            await plane.append(batch(b"v"))
        plane.partition().delete_records(2)
        connection = await plane.connect()
        for offset, expected in (
            (-1, ErrorCode.OFFSET_OUT_OF_RANGE),
            (0, ErrorCode.OFFSET_OUT_OF_RANGE),
            (1, ErrorCode.OFFSET_OUT_OF_RANGE),
            (2, ErrorCode.NONE),
            (4, ErrorCode.NONE),
            (5, ErrorCode.OFFSET_OUT_OF_RANGE),
            (2**62, ErrorCode.OFFSET_OUT_OF_RANGE),
        ):
            data = only_fetched(await connection.send(fetch(at(offset)), 12))
            assert data.error_code == expected, offset
            if expected is ErrorCode.NONE:
                assert (data.log_start_offset, data.high_watermark) == (2, 4)
            else:
                assert (data.high_watermark, len(data.records or b"")) == (-1, 0)

    play(talk, settings=PAGE_CACHE)


def test_unknown_partitions_and_topics_fail_on_their_own() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.append(batch(b"v"))
        connection = await plane.connect()
        request = fetch(at(0), at(0, 7))
        request.topics.append(FetchTopic(topic="nothing", topic_id=UUID(int=3), partitions=[at(0)]))
        for version in (0, 3, 11, 12):
            response = await connection.send(request, version)
            codes = [[data.error_code for data in topic.partitions] for topic in response.responses]
            assert codes == [
                [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
                [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
            ]
        request.topics[0].topic_id = plane.topic_id()
        for version in (13, LAST):
            response = await connection.send(request, version)
            codes = [[data.error_code for data in topic.partitions] for topic in response.responses]
            assert codes == [[ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], [ErrorCode.UNKNOWN_TOPIC_ID]]
            assert [topic.topic_id for topic in response.responses] == [plane.topic_id(), UUID(int=3)]

    play(talk, settings=PAGE_CACHE)


def test_isolation() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        append_transactional(plane, 1, b"lost")
        append_control(plane, 1, ControlType.ABORT)
        append_transactional(plane, 2, b"open")
        await plane.append(batch(b"plain"))
        everything = only_fetched(await connection.send(fetch(at(0)), 12))
        assert (everything.high_watermark, everything.last_stable_offset) == (4, 2)
        assert everything.aborted_transactions is None
        assert len(list(iter_batches(bytes(everything.records or b"")))) == 4
        for version in (4, 11, 12):
            data = only_fetched(await connection.send(fetch(at(0), isolation_level=1), version))
            assert (data.high_watermark, data.last_stable_offset) == (4, 2)
            aborted = data.aborted_transactions
            assert aborted is not None
            assert [(one.producer_id, one.first_offset) for one in aborted] == [(1, 0)]
            assert [one.is_control for one in iter_batches(bytes(data.records or b""))] == [False, True]
        waiting = connection.send(fetch(at(2), isolation_level=1, max_wait_ms=60_000), 12)
        await plane.until(lambda: plane.state.replica_manager.delayed_operations["Fetch"] == 1)
        append_control(plane, 2, ControlType.COMMIT)
        data = only_fetched(await waiting)
        assert (data.last_stable_offset, data.aborted_transactions) == (5, [])
        assert [one.base_offset for one in iter_batches(bytes(data.records or b""))] == [2, 3, 4]

    play(talk, settings=PAGE_CACHE)


# -- old formats ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
@pytest.mark.parametrize("version", range(4))
def test_old_readers_get_their_format(version: int, codec: Compression) -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        await connection.send(produce(batch(b"a", b"b", b"c", timestamp=7, codec=codec)), 9)
        old = build_message_set(legacy_records(b"old", timestamp=8), magic=1, codec=codec)
        await connection.send(produce(old), 2)
        data = only_fetched(await connection.send(fetch(at(1)), version))
        records = [record for one in iter_batches(bytes(data.records or b"")) for record in one.records()]
        magic = 0 if version < 2 else 1
        assert {one.magic for one in iter_batches(bytes(data.records or b""))} == {magic}
        wanted = [(1, b"b"), (2, b"c"), (3, b"old")]
        assert [(record.offset, record.value) for record in records if record.offset >= 1] == wanted
        assert [record.timestamp for record in records][-1] == (8 if magic else -1)

    play(talk, settings=PAGE_CACHE)


def test_control_batches_are_left_out_for_old_readers() -> None:
    async def talk(plane: DataPlane) -> None:
        append_transactional(plane, 1, b"kept")
        append_control(plane, 1, ControlType.COMMIT)
        connection = await plane.connect()
        data = only_fetched(await connection.send(fetch(at(0)), 3))
        assert values_in(data) == [b"kept"]
        data = only_fetched(await connection.send(fetch(at(1)), 3))
        stub = bytes(data.records or b"")
        assert len(stub) == 12 and int.from_bytes(stub[8:], "big") == 0x7FFFFFFF

    play(talk, settings=PAGE_CACHE)


def test_old_readers_get_so_many_decompressed_bytes_of_all_partitions_and_the_rest_with_their_next_fetches() -> None:
    size = MAX_CONVERTED_BYTES * 2 // 5

    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        for index in (0, 1):
            for letter in (b"a", b"b", b"c"):
                packed = batch(letter * size, codec=Compression.GZIP)
                await connection.send(produce(packed, index=index), 9)
        places, rounds = [0, 0], []
        while places != [3, 3]:
            wanted = [at(places[index], index) for index in (0, 1)]
            found = fetched(await connection.send(fetch(*wanted, max_bytes=1 << 20), 3))
            assert {data.error_code for data in found.values()} == {ErrorCode.NONE}
            rounds.append([[value[:1] for value in values_in(found[index]) if value] for index in (0, 1)])
            for index in (0, 1):
                places[index] += len(rounds[-1][index])
        assert rounds == [[[b"a", b"b"], []], [[b"c"], [b"a"]], [[], [b"b", b"c"]]]

    play(talk, settings=PAGE_CACHE)


def test_zstd_needs_version_4() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("packed", compression_type="zstd")
        connection = await plane.connect()
        await connection.send(produce(batch(b"v" * 100), topic="packed"), 9)
        for version in range(13):
            data = only_fetched(await connection.send(fetch(at(0), topic="packed"), version))
            expected = ErrorCode.NONE if version >= 4 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            assert data.error_code == expected
            assert values_in(data) == ([b"v" * 100] if version >= 4 else [])

    play(talk, settings=PAGE_CACHE)


# -- leader epochs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(9, LAST + 1))
def test_readers_with_another_leader_epoch_are_fenced(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.append(batch(b"v"))
        partition = plane.partition()
        partition.become_leader(next_order(partition, partition.leader_epoch + 3))
        epoch = partition.leader_epoch
        connection = await plane.connect()
        for current, expected in (
            (-1, ErrorCode.NONE),
            (epoch, ErrorCode.NONE),
            (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
            (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            request = fetch(at(0, current_leader_epoch=current), topic_id=plane.topic_id())
            response = await connection.send(request, version)
            data = only_fetched(response)
            assert data.error_code == expected
            if expected is ErrorCode.FENCED_LEADER_EPOCH and version >= 16:
                assert data.current_leader.leader_id == plane.state.broker_id
                listener = plane.server.listeners[0]
                assert [(node.node_id, node.host, node.port) for node in response.node_endpoints] == [
                    (plane.state.broker_id, listener.advertised_host, listener.advertised_port)
                ]
            else:
                assert (data.current_leader.leader_id, response.node_endpoints) == (-1, [])

    play(talk, settings=PAGE_CACHE)


def test_a_replica_that_does_not_lead_says_so_and_who_does() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        plane.partition().is_leader = False
        for version in range(LAST + 1):
            response = await connection.send(fetch(at(0), topic_id=plane.topic_id()), version)
            data = only_fetched(response)
            assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            hinted = version >= 16
            assert data.current_leader.leader_id == (plane.state.broker_id if hinted else -1)
            assert len(response.node_endpoints) == hinted

    play(talk, settings=PAGE_CACHE)


def test_a_new_leader_epoch_wakes_a_waiting_reader() -> None:
    async def talk(plane: DataPlane) -> None:
        partition = plane.partition()
        reader = await plane.connect()
        waiting = reader.send(fetch(at(0, current_leader_epoch=partition.leader_epoch), max_wait_ms=60_000), 12)
        await plane.until(lambda: plane.state.replica_manager.delayed_operations["Fetch"] == 1)
        plane.state.replica_manager.become_leader(next_order(partition, partition.leader_epoch + 1))
        data = only_fetched(await asyncio.wait_for(waiting, 5))
        assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH

    play(talk, settings=PAGE_CACHE)


def test_where_a_readers_log_parted_from_ours() -> None:
    async def talk(plane: DataPlane) -> None:
        partition = plane.partition()
        old = partition.leader_epoch
        for _ in range(3):
            await plane.append(batch(b"v"))
        partition.become_leader(next_order(partition, old + 2))
        for _ in range(2):
            await plane.append(batch(b"w"))
        connection = await plane.connect()

        async def diverging(offset: int, epoch: int) -> tuple[int, int, int]:
            data = only_fetched(await connection.send(fetch(at(offset, last_fetched_epoch=epoch)), 12))
            assert (data.diverging_epoch.end_offset < 0) or not data.records
            return data.error_code, data.diverging_epoch.epoch, data.diverging_epoch.end_offset

        assert await diverging(3, old) == (ErrorCode.NONE, -1, -1)
        assert await diverging(5, old + 2) == (ErrorCode.NONE, -1, -1)
        assert await diverging(4, old) == (ErrorCode.NONE, old, 3)
        assert await diverging(4, old + 1) == (ErrorCode.NONE, old, 3)

    play(talk, settings=PAGE_CACHE)


# -- several at once ------------------------------------------------------------------------------------------------


def test_many_waiting_readers_are_all_woken_by_one_request() -> None:
    async def talk(plane: DataPlane) -> None:
        readers = [await plane.connect() for _ in range(20)]
        waiting = [
            reader.send(fetch(at(0, number % 2), max_wait_ms=60_000), 12) for number, reader in enumerate(readers)
        ]
        await plane.until(lambda: plane.state.replica_manager.delayed_operations["Fetch"] == 20)
        data = [PartitionProduceData(index=index, records=batch(b"v")) for index in (0, 1)]
        request = ProduceRequest(acks=1, timeout_ms=100, topic_data=[TopicProduceData(name="t", partition_data=data)])
        await (await plane.connect()).send(request, 9)
        for response in await asyncio.gather(*waiting):
            assert values_in(only_fetched(response)) == [b"v"]
        assert not plane.state.replica_manager._fetch_purgatory.watchers

    play(talk, settings=PAGE_CACHE)


def test_consumers_that_wait_with_equal_fetches_share_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[tuple[Any, ...]] = []
    original = Log.read

    def read(self: Log, *arguments: Any, **options: Any) -> FetchData:
        reads.append(arguments)
        return original(self, *arguments, **options)

    async def talk(plane: DataPlane) -> None:
        equal, other = [await plane.connect() for _ in range(40)], await plane.connect()
        writer = await plane.connect()
        for offset in range(3):
            waiting = [reader.send(fetch(at(offset), max_wait_ms=60_000), 12) for reader in equal]
            waiting.append(other.send(fetch(at(offset), max_wait_ms=60_000, isolation_level=1), 12))
            await plane.until(lambda: plane.state.replica_manager.delayed_operations["Fetch"] == 41)
            reads.clear()
            await writer.send(produce(batch(b"%d" % offset)), 9)
            for response in await asyncio.gather(*waiting):
                data = only_fetched(response)
                assert (values_in(data), data.high_watermark) == ([b"%d" % offset], offset + 1)
            assert len(reads) <= 3, "the fetch with another isolation level is read between equal ones"

    with monkeypatch.context() as patch:
        patch.setattr(Log, "read", read)
        play(talk, settings=PAGE_CACHE)


def test_a_partition_named_twice_is_answered_once_from_its_last_offset() -> None:
    async def talk(plane: DataPlane) -> None:
        for value in (b"a", b"b"):
            await plane.append(batch(value))
        connection = await plane.connect()
        response = await connection.send(fetch(at(0), at(1)), 12)
        assert [values_in(data) for topic in response.responses for data in topic.partitions] == [[b"b"]]

    play(talk, settings=PAGE_CACHE)


@pytest.mark.parametrize("version", [4, 12, 18])
def test_answers_keep_the_order_of_the_request(version: int) -> None:
    """A client may rely on it, and topics are merged only where they are neighbours."""

    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("u", 2)
        wanted = [("t", 0), ("u", 0), ("t", 1), ("u", 1)]
        topics = [
            FetchTopic(topic=name, topic_id=plane.topic_id(name), partitions=[at(0, index)]) for name, index in wanted
        ]
        names = {plane.topic_id(name): name for name in ("t", "u")}
        connection = await plane.connect()
        for order in (topics, topics[::-1], [topics[0], topics[2], topics[1]]):
            request = fetch(session_epoch=-1)
            request.topics = order
            response = await connection.send(request, version)
            found = [
                (names.get(topic.topic_id, topic.topic), data.partition_index)
                for topic in response.responses
                for data in topic.partitions
            ]
            assert found == [wanted[topics.index(topic)] for topic in order]
        assert len(response.responses) == 2, "t-0 and t-1 are neighbours"

    play(talk, settings=PAGE_CACHE)


def test_a_transaction_index_that_is_damaged_spoils_no_other_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    collect = TransactionIndex.collect_aborted

    def damaged(index: TransactionIndex, start: int, bound: int) -> tuple[list[AbortedTxn], bool]:
        if "/t-0/" in index.path:
            raise CorruptIndexError(index.path)
        return collect(index, start, bound)

    async def talk(plane: DataPlane) -> None:
        for index in (0, 1):
            await plane.append(batch(b"x"), index=index)
        monkeypatch.setattr(TransactionIndex, "collect_aborted", damaged)
        client = await plane.connect()
        found = fetched(await client.send(fetch(at(0), at(0, 1), isolation_level=1), 12))
        assert found[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR and not found[0].records
        assert found[1].error_code == 0 and values_in(found[1]) == [b"x"]

    play(talk, settings=PAGE_CACHE)
