"""The share coordinator of one broker: requests, its log, restart, and the deletion of redundant records."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from tests.server.coordinator.share.share_requests import (
    delete,
    delete_data,
    initialize,
    initialize_data,
    read,
    read_data,
    summary,
    summary_data,
    write,
    write_data,
)
from tests.server.data_plane import PAGE_CACHE, DataPlane, play

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from barnabas.protocol.record_batch import iter_batches
from barnabas.server.coordinator.share.share_coordinator import SHARE_PARTITIONS_PER_TURN
from barnabas.server.coordinator.share.share_coordinator_record_helpers import (
    CoordinatorRecordType,
    ShareStateRecord,
    read_record,
)
from barnabas.server.coordinator.share.share_partition_key import SharePartitionKey
from barnabas.server.metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from barnabas.server.replication.partition import Partition

SETTINGS = {"share.coordinator.state.topic.num.partitions": "1"}
SETTINGS_IN_MEMORY = {**SETTINGS, **PAGE_CACHE}
NONE = ErrorCode.NONE
UNKNOWN_ID = UUID(int=77)


def only(response: Any) -> Any:
    """The only partition of a response."""
    ((partition,),) = (topic.partitions for topic in response.results)
    return partition


def records_of(plane: DataPlane) -> list[ShareStateRecord]:
    """All records of the only partition of the log, from the log start offset on."""
    partition = plane.partition(SHARE_GROUP_STATE_TOPIC)
    data = partition.log.read(partition.log_start_offset, 1 << 24, min_one_message=True).data
    found = []
    for batch in iter_batches(data):
        for record in batch.records():
            if record.offset >= partition.log_start_offset:
                one = read_record(bytes(record.key or b""), record.value)
                assert one is not None
                found.append(one)
    return found


async def begin(plane: DataPlane, group_id: str = "g", *data: Any) -> UUID:
    """Initialize share-partitions of topic `t`, by default both; return its id."""
    topic_id = plane.topic_id()
    request = initialize(group_id, topic_id, *(data or (initialize_data(0), initialize_data(1))))
    response = await plane.state.persister.initialize_state(request)
    assert all(one.error_code == NONE for topic in response.results for one in topic.partitions)
    return topic_id


def test_states_are_written_read_and_deleted_over_the_wire() -> None:
    async def talk(plane: DataPlane) -> None:
        connection, topic_id = await plane.connect(), plane.topic_id()
        key = SharePartitionKey("g", topic_id, 0).coordinator_key
        found = await connection.send(FindCoordinatorRequest(key_type=2, coordinator_keys=[key]))
        assert [(one.key, one.error_code, one.node_id) for one in found.coordinators] == [
            (key, NONE, plane.state.broker_id)
        ]
        assert only(await connection.send(read("g", topic_id, read_data()))).error_code == ErrorCode.INVALID_REQUEST
        unread = only(await connection.send(summary("g", topic_id, summary_data())))
        assert (unread.error_code, unread.start_offset, unread.delivery_complete_count) == (NONE, -1, -1)
        assert only(await connection.send(initialize("g", topic_id, initialize_data(start=5)))).error_code == NONE
        wanted = write("g", topic_id, write_data((5, 8, 2, 1), (9, 9, 0, 3), start=5, count=4))
        for version in (0, 1):
            assert only(await connection.send(wanted, version)).error_code == NONE
        state = only(await connection.send(read("g", topic_id, read_data(leader_epoch=2))))
        assert (state.error_code, state.state_epoch, state.start_offset) == (NONE, 0, 5)
        assert [(one.first_offset, one.last_offset, one.delivery_state) for one in state.state_batches] == [
            (5, 8, 2),
            (9, 9, 0),
        ]
        for version, count in ((0, -1), (1, 4)):
            found = only(await connection.send(summary("g", topic_id, summary_data()), version))
            assert (found.start_offset, found.leader_epoch, found.delivery_complete_count) == (5, 2, count)
        assert only(await connection.send(delete("g", topic_id, delete_data()))).error_code == NONE
        assert only(await connection.send(read("g", topic_id, read_data()))).error_code == ErrorCode.INVALID_REQUEST
        connection.close()

    play(talk, settings=SETTINGS)


def test_requests_without_a_group_or_partitions_have_no_results() -> None:
    async def talk(plane: DataPlane) -> None:
        topic_id = await begin(plane)
        coordinator = plane.state.share_coordinator
        assert (await coordinator.write_state(WriteShareGroupStateRequest(group_id="g"))).results == []
        assert (await coordinator.write_state(write("", topic_id, write_data()))).results == []
        assert (await coordinator.write_state(write("g", topic_id))).results == []
        assert (await coordinator.read_state(read("g", topic_id))).results == []
        assert (await coordinator.delete_state(delete("g", topic_id))).results == []
        assert (await coordinator.read_state_summary(summary("g", topic_id))).results == []
        assert (await coordinator.initialize_state(initialize("g", topic_id))).results == []

    play(talk, settings=SETTINGS_IN_MEMORY)


@pytest.mark.parametrize(
    ("version", "key", "expected"),
    [
        (5, "g:{}:0", ErrorCode.INVALID_REQUEST),
        (6, "g:{}:0", NONE),
        (6, "g:{}", ErrorCode.INVALID_REQUEST),
        (6, "g", ErrorCode.INVALID_REQUEST),
        (6, "g:x:0", ErrorCode.INVALID_REQUEST),
    ],
)
def test_coordinators_are_found_by_the_key_of_a_share_partition(version: int, key: str, expected: ErrorCode) -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        name = SharePartitionKey("", plane.topic_id(), 0).coordinator_key.split(":")[1]
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=[key.format(name)])
        (found,) = (await connection.send(request, version)).coordinators
        assert (found.error_code, found.node_id) == (expected, plane.state.broker_id if expected is NONE else -1)
        assert (SHARE_GROUP_STATE_TOPIC in plane.state.metadata) == (expected is NONE)
        connection.close()

    play(talk, settings=SETTINGS_IN_MEMORY)


def test_the_topic_has_the_settings_of_kafka() -> None:
    async def talk(plane: DataPlane) -> None:
        await begin(plane)
        config = plane.partition(SHARE_GROUP_STATE_TOPIC).log.config
        assert (config.retention_ms, config.retention_bytes, config.segment_bytes) == (-1, -1, 104857600)
        assert not config.compact
        topic = plane.state.metadata.topic(SHARE_GROUP_STATE_TOPIC)
        assert topic is not None
        assert topic.is_internal
        assert len(topic.partitions) == 1

    play(talk, settings=SETTINGS_IN_MEMORY)


def test_the_writes_of_one_turn_are_one_batch() -> None:
    async def talk(plane: DataPlane) -> None:
        topic_id = await begin(plane)
        coordinator, partition = plane.state.share_coordinator, plane.partition(SHARE_GROUP_STATE_TOPIC)
        start = partition.log_end_offset
        writes = [write("g", topic_id, write_data((one, one, 2, 1), partition=one % 2)) for one in range(50)]
        responses = await asyncio.gather(*map(coordinator.write_state, writes))
        assert {only(response).error_code for response in responses} == {NONE}
        assert partition.high_watermark == partition.log_end_offset == start + 50
        batches = list(iter_batches(partition.log.read(start, 1 << 20, min_one_message=True).data))
        assert len(batches) == 1
        assert coordinator.metrics.write_count == 50
        assert len(coordinator.metrics.write_latencies) == 50

    play(talk, settings=SETTINGS)


@pytest.mark.parametrize(("linger_ms", "batches"), [("0", 10), ("5", 1), ("-1", 1)])
def test_the_linger_time_decides_on_batches(linger_ms: str, batches: int) -> None:
    async def talk(plane: DataPlane) -> None:
        topic_id = await begin(plane)
        coordinator, partition = plane.state.share_coordinator, plane.partition(SHARE_GROUP_STATE_TOPIC)
        start, began = partition.log_end_offset, plane.loop.time()
        await asyncio.gather(
            *(coordinator.write_state(write("g", topic_id, write_data((one, one, 2, 1)))) for one in range(10))
        )
        found = list(iter_batches(partition.log.read(start, 1 << 20, min_one_message=True).data))
        assert len(found) == batches
        assert plane.loop.time() - began >= max(int(linger_ms), 0) / 1001

    play(talk, settings={**SETTINGS_IN_MEMORY, "share.coordinator.append.linger.ms": linger_ms})


def test_a_response_waits_until_the_write_is_on_disk() -> None:
    async def talk(plane: DataPlane) -> None:
        topic_id = await begin(plane)
        coordinator, partition = plane.state.share_coordinator, plane.partition(SHARE_GROUP_STATE_TOPIC)
        loop = asyncio.get_running_loop()
        writing = loop.create_task(coordinator.write_state(write("g", topic_id, write_data((0, 0, 2, 1), start=1))))
        reading = loop.create_task(coordinator.read_state_summary(summary("g", topic_id, summary_data())))
        end = partition.log_end_offset + 1
        await plane.until(lambda: partition.log_end_offset == end)
        while not writing.done():
            assert not reading.done(), "a read of a state that is not durable"
            assert partition.high_watermark <= end
            await asyncio.sleep(0.0001)
        assert partition.high_watermark == end
        assert only(await reading).start_offset == 1

    play(talk, settings=SETTINGS)


def test_replies_follow_a_commit_during_which_the_deletion_of_records_was_cancelled() -> None:
    async def talk(plane: DataPlane) -> None:
        topic_id = await begin(plane)
        coordinator, partition = plane.state.share_coordinator, plane.partition(SHARE_GROUP_STATE_TOPIC)
        loop = asyncio.get_running_loop()
        end = partition.log_end_offset + 1
        writing = loop.create_task(coordinator.write_state(write("g", topic_id, write_data((0, 0, 2, 1), start=1))))
        await asyncio.sleep(0)
        pruning = loop.create_task(coordinator.prune_records())
        for _ in range(10):
            await asyncio.sleep(0)
        reading = loop.create_task(coordinator.read_state_summary(summary("g", topic_id, summary_data())))
        await asyncio.sleep(0)
        assert partition.log_end_offset == end > partition.high_watermark
        pruning.cancel()  # as at the stop of a broker
        await asyncio.wait([pruning])
        assert not writing.done()
        assert only(await asyncio.wait_for(writing, 10)).error_code == NONE
        assert only(await asyncio.wait_for(reading, 10)).start_offset == 1

    play(talk, settings=SETTINGS)


def test_states_survive_a_restart() -> None:
    async def talk(plane: DataPlane) -> None:
        topic_id = await begin(plane, "g", initialize_data(0, state_epoch=3), initialize_data(1))
        persister = plane.state.persister
        for one in range(0, 30, 3):
            await persister.write_state(write("g", topic_id, write_data((one, one, 2, 1), state_epoch=3, start=0)))
        await persister.read_state(read("g", topic_id, read_data(leader_epoch=6)))
        await persister.delete_state(delete("g", topic_id, delete_data(1)))
        await plane.world.broker.stop()
        await plane.world.broker.start()
        coordinator = plane.state.share_coordinator
        await plane.until(lambda: not coordinator.is_loading)
        state = only(await coordinator.read_state(read("g", topic_id, read_data(leader_epoch=6))))
        assert (state.error_code, state.state_epoch, state.start_offset) == (NONE, 3, 0)
        assert [one.first_offset for one in state.state_batches] == list(range(0, 30, 3))
        fenced = only(await coordinator.read_state(read("g", topic_id, read_data(leader_epoch=5))))
        assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
        deleted = only(await coordinator.read_state(read("g", topic_id, read_data(1))))
        assert deleted.error_code == ErrorCode.INVALID_REQUEST

    play(talk, settings={**SETTINGS, "share.coordinator.snapshot.update.records.per.snapshot": "4"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\0\0\0\1", b"\0\0"),  # the key ends within the group id
        (b"\0\1", None),
        ("its own", b"\0\0\xff"),
        ("its own", b"\0\x63" + bytes(40)),
        ("its own", None),
    ],
)
def test_a_damaged_record_costs_no_other_share_partition_when_the_log_is_loaded(
    key: bytes | str, value: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk(plane: DataPlane) -> None:
        topic_id = await begin(plane, "a", initialize_data(0), initialize_data(1))
        persister = plane.state.persister
        await persister.write_state(write("a", topic_id, write_data((0, 4, 2, 1), start=0)))
        written = [one for one in records_of(plane) if one.type is CoordinatorRecordType.SHARE_UPDATE]
        assert written, "the state has an update"
        damaged = written[0].encode()[0] if isinstance(key, str) else key
        outcomes: list[ErrorCode] = []
        log = plane.state.share_coordinator._log
        assert log.append(0, [(damaged, value)], outcomes.append, timeout_ms=10_000)
        await plane.until(lambda: outcomes == [NONE])
        await begin(plane, "z", initialize_data(0, start=7))
        await persister.write_state(write("a", topic_id, write_data((5, 6, 2, 1), start=0)))
        caplog.clear()
        await plane.world.broker.stop()
        await plane.world.broker.start()
        coordinator = plane.state.share_coordinator
        await plane.until(lambda: not coordinator.is_loading)
        assert "a record of a share-partition is skipped" in caplog.text
        assert coordinator.count_partitions() == {"loading": 0, "active": 1, "failed": 0}
        state = only(await coordinator.read_state(read("a", topic_id, read_data())))
        assert (state.error_code, state.start_offset) == (NONE, 0)
        assert [(one.first_offset, one.last_offset) for one in state.state_batches] == [(0, 6)]
        other = only(await coordinator.read_state(read("z", topic_id, read_data())))
        assert (other.error_code, other.start_offset) == (NONE, 7)

    play(talk, settings=SETTINGS)


def test_redundant_records_are_deleted() -> None:
    async def talk(plane: DataPlane) -> None:
        topic_id = await begin(plane)
        persister, coordinator = plane.state.persister, plane.state.share_coordinator
        partition = plane.partition(SHARE_GROUP_STATE_TOPIC)
        for one in range(20):
            await persister.write_state(write("g", topic_id, write_data((one, one, 2, 1), start=0)))
        await coordinator.prune_records()
        assert partition.log_start_offset == 0, "the snapshot of the second share-partition is the first record"
        interval_ms = plane.server.config.share_coordinator_cold_partition_snapshot_interval_ms
        await asyncio.sleep(interval_ms / 1000)
        await plane.until(lambda: partition.log_start_offset > 0)
        records = records_of(plane)
        assert {one.key.partition for one in records if one.type is CoordinatorRecordType.SHARE_SNAPSHOT} == {0, 1}
        assert coordinator.metrics.last_pruned_offsets == {0: partition.log_start_offset}
        await plane.world.broker.stop()
        await plane.world.broker.start()
        state = only(await plane.state.persister.read_state(read("g", topic_id, read_data())))
        assert [(one.first_offset, one.last_offset) for one in state.state_batches] == [(0, 19)]
        again = only(await plane.state.persister.read_state(read("g", topic_id, read_data(1))))
        assert (again.error_code, again.start_offset) == (NONE, 0)

    play(talk, settings={**SETTINGS, "share.coordinator.snapshot.update.records.per.snapshot": "5"})


def test_the_states_of_a_deleted_topic_are_deleted() -> None:
    async def talk(plane: DataPlane) -> None:
        topic_id = await begin(plane)
        await plane.delete_topic("t")
        await plane.until(lambda: [one.offset for one in records_of(plane)[2:]] == [None, None])
        await plane.create_topic("t", 2)
        assert plane.topic_id() != topic_id
        response = await plane.state.share_coordinator.read_state(read("g", topic_id, read_data()))
        assert only(response).error_code == ErrorCode.INVALID_REQUEST

    play(talk, settings=SETTINGS_IN_MEMORY)


def test_a_write_that_cannot_be_appended_has_no_effect() -> None:
    async def talk(plane: DataPlane) -> None:
        topic_id = await begin(plane)
        coordinator, partition = plane.state.share_coordinator, plane.partition(SHARE_GROUP_STATE_TOPIC)
        await coordinator.write_state(write("g", topic_id, write_data((0, 0, 2, 1), start=0)))
        end = partition.log_end_offset

        def refuse(*_: Any) -> Any:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

        writes = [write("g", topic_id, write_data((one, one, 2, 1), start=one)) for one in range(5, 9)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Partition, "append_records_to_leader", refuse)
            responses = await asyncio.gather(*map(coordinator.write_state, writes))
        assert {only(response).error_code for response in responses} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert partition.log_end_offset == end
        state = only(await coordinator.read_state(read("g", topic_id, read_data())))
        assert (state.start_offset, [one.last_offset for one in state.state_batches]) == (0, [0])

    play(talk, settings=SETTINGS_IN_MEMORY)


def test_a_snapshot_that_is_not_committed_makes_no_record_redundant() -> None:
    async def talk(plane: DataPlane) -> None:
        topic_id = await begin(plane)
        coordinator, partition = plane.state.share_coordinator, plane.partition(SHARE_GROUP_STATE_TOPIC)
        data = (initialize_data(0, state_epoch=1), initialize_data(1, state_epoch=1))

        def refuse(*_: Any) -> Any:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Partition, "append_records_to_leader", refuse)
            writing = asyncio.ensure_future(coordinator.initialize_state(initialize("g", topic_id, *data)))
            await asyncio.sleep(0)
            await coordinator.prune_records()
            assert {one.error_code for one in (await writing).results[0].partitions} == {
                ErrorCode.COORDINATOR_NOT_AVAILABLE
            }
        assert partition.log_start_offset == 0
        await coordinator.initialize_state(initialize("g", topic_id, *data))
        await coordinator.prune_records()
        assert partition.log_start_offset == 2

    play(talk, settings=SETTINGS_IN_MEMORY)


def test_a_group_id_that_has_no_room_in_a_key_is_refused() -> None:
    async def talk(plane: DataPlane) -> None:
        topic_id = await begin(plane)
        coordinator = plane.state.share_coordinator
        request = initialize("g" * 40_000, topic_id, initialize_data())
        assert only(await coordinator.initialize_state(request)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        request = initialize("g" * 32_000, topic_id, initialize_data())
        assert only(await coordinator.initialize_state(request)).error_code == NONE

    play(talk, settings=SETTINGS_IN_MEMORY)


def test_the_topic_of_a_request_need_not_exist() -> None:
    async def talk(plane: DataPlane) -> None:
        await begin(plane)
        coordinator = plane.state.share_coordinator
        response = await coordinator.initialize_state(initialize("g", UNKNOWN_ID, initialize_data()))
        assert only(response).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(talk, settings=SETTINGS_IN_MEMORY)


def test_a_large_request_is_handled_in_slices() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("many", 2000)
        topic_id = plane.topic_id("many")
        coordinator = plane.state.share_coordinator
        await coordinator.find_coordinator(SharePartitionKey("g", topic_id, 0))
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.get_running_loop().create_task(count())
        request = initialize("g", topic_id, *(initialize_data(one) for one in range(2000)))
        response = await coordinator.initialize_state(request)
        counting.cancel()
        (topic,) = response.results
        assert [one.partition for one in topic.partitions] == list(range(2000))
        assert {one.error_code for one in topic.partitions} == {NONE}
        assert turns >= 2000 // SHARE_PARTITIONS_PER_TURN - 1

    play(talk, settings=SETTINGS_IN_MEMORY)
