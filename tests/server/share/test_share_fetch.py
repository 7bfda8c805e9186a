"""ShareFetch and ShareAcknowledge of a broker in a simulation."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.server.data_plane import batch
from tests.server.partition_states import next_order
from tests.server.quotas.test_enforcement import set_quota
from tests.server.share.fake_persister import FakePersister
from tests.server.share.share_plane import Member, SharePlane, only, play_share, ranges, records

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.share_acknowledge import ShareAcknowledgeResponse
from barnabas.protocol.messages.share_fetch import ShareFetchResponse
from barnabas.protocol.record_batch import ControlType, control_batch, iter_batches
from barnabas.server.replication.append_request import AppendRequest
from barnabas.server.runtime.loop_sharing import SLICE_SECONDS, SlicedWork
from barnabas.server.share.delayed_share_fetch import DelayedShareFetch
from barnabas.server.share.managed_share_partition import ManagedSharePartition
from barnabas.server.share.record_state import AcquireMode, RecordState
from barnabas.server.share.share_session import ShareSessionKey
from barnabas.simulation.machines import START_MS
from barnabas.storage.log_validator import COORDINATOR_RULES

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


def error_of(response: ShareAcknowledgeResponse) -> int:
    assert response.error_code == 0, response
    ((data,),) = (topic.partitions for topic in response.responses)
    return data.error_code


def acquired(response: ShareFetchResponse) -> dict[int, list[int]]:
    """Return the first offsets of the acquired ranges by partition."""
    return {
        data.partition_index: [one.first_offset for one in data.acquired_records]
        for topic in response.responses
        for data in topic.partitions
        if data.acquired_records
    }


async def begin(plane: SharePlane, *values: bytes) -> Member:
    """Produce records to the first partition, and acquire them for a member."""
    await plane.produce(*values)
    member = await plane.member()
    assert ranges(await member.fetch((0,), max_wait_ms=1000)) == [(0, len(values) - 1, 1)]
    return member


def test_sessions_and_share_partitions_end_when_share_groups_are_disabled() -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        manager = plane.state.share_partition_manager
        member = await begin(plane, b"1", b"2")
        waiting = asyncio.ensure_future((await plane.member("m2")).fetch((0,), max_wait_ms=30_000))
        await asyncio.sleep(0.1)
        await manager.on_share_version_change()  # the level permits share groups still
        assert len(manager.sessions) == 2
        plane.serve_share_groups(0)
        await manager.on_share_version_change()
        assert len(manager.sessions) == 0
        assert manager.share_partitions == []
        assert only(await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await member.fetch()).error_code == ErrorCode.UNSUPPORTED_VERSION
        # The records of the ended session are available, once the level is raised again.
        plane.serve_share_groups(2)
        again = await plane.member("m3")
        assert ranges(await again.fetch((0,), max_wait_ms=1000)) == [(0, 1, 1)]

    play_share(talk)


@pytest.mark.parametrize("version", [1, 2])
def test_records_are_acquired_and_accepted(version: int) -> None:
    async def talk(plane: SharePlane) -> None:
        persister = plane.use_fake_persister()
        await plane.produce(b"a", b"b", b"c")
        member = await plane.member()
        first = await member.fetch((0,), max_wait_ms=1000, version=version)
        assert ranges(first) == [(0, 2, 1)]
        assert [record.value for record in records(only(first))] == [b"a", b"b", b"c"]
        assert first.acquisition_lock_timeout_ms == 30_000
        assert ranges(await member.fetch(version=version)) == []
        done = await member.acknowledge({0: [(0, 2, [ACCEPT])]}, version=version)
        assert error_of(done) == 0
        assert done.acquisition_lock_timeout_ms == (30_000 if version == 2 else 0)
        state = persister.state("g", plane.topic_id())
        assert [state.offsets[offset][0] for offset in (0, 1, 2)] == [RecordState.ACKNOWLEDGED] * 3
        other = await plane.member("m2")
        assert ranges(await other.fetch((0,), version=version)) == []

    play_share(talk)


def test_each_acknowledge_type_has_its_effect() -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        member = await begin(plane, *[b"v"] * 6)
        response = await member.fetch(
            acks={0: [(0, 5, [ACCEPT, RELEASE, REJECT, 0, RELEASE, ACCEPT])]}, max_wait_ms=1000
        )
        data = only(response)
        assert (data.error_code, data.acknowledge_error_code) == (0, 0)
        found = ranges(response) or ranges(await member.fetch(max_wait_ms=1000))
        assert found == [(1, 1, 2), (4, 4, 2)]
        # Only the owner may acknowledge, and only once.
        other = await plane.member("m2")
        await other.fetch((0,))
        assert error_of(await other.acknowledge({0: [(1, 1, [ACCEPT])]})) == ErrorCode.INVALID_RECORD_STATE
        assert error_of(await member.acknowledge({0: [(1, 1, [ACCEPT])]})) == 0
        assert error_of(await member.acknowledge({0: [(4, 4, [ACCEPT]), (4, 4, [ACCEPT])]})) != 0
        assert error_of(await member.acknowledge({0: [(4, 4, [ACCEPT])]})) == 0
        assert ranges(await member.fetch()) == []

    play_share(talk)


def test_a_fetch_rejects_acknowledgements_of_lost_records_before_it_acquires_them_again() -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        member = await begin(plane, b"a", b"b")
        assert error_of(await member.acknowledge({0: [(0, 1, [RELEASE])]})) == 0
        response = await member.fetch(acks={0: [(0, 1, [ACCEPT])]}, max_wait_ms=1000)
        assert only(response).acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE
        assert ranges(response) == [(0, 1, 2)]
        assert error_of(await member.acknowledge({0: [(0, 1, [ACCEPT])]})) == 0

    play_share(talk)


def test_an_expired_lock_releases_records_and_a_renewed_one_does_not() -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        plane.set_group(share_record_lock_duration_ms="2000")
        member = await begin(plane, b"a", b"b")
        other = await plane.member("m2")
        await other.fetch((0,))
        await asyncio.sleep(1.5)
        renewed = await member.fetch(
            acks={0: [(0, 0, [RENEW])]}, is_renew_ack=True, max_bytes=0, min_bytes=0, max_records=0, max_wait_ms=0
        )
        assert only(renewed).acknowledge_error_code == 0
        assert ranges(await other.fetch(max_wait_ms=1000)) == [(1, 1, 2)]
        assert ranges(await other.fetch(max_wait_ms=3000)) == [(0, 0, 2)]
        late = await member.acknowledge({0: [(0, 1, [ACCEPT])]})
        assert error_of(late) == ErrorCode.INVALID_RECORD_STATE
        assert plane.state.share_partition_manager.metrics.acquisition_lock_timeouts >= 2

    play_share(talk, settings={"group.share.min.record.lock.duration.ms": "1000"})


def test_a_renewal_is_refused_unless_the_request_says_so_and_the_group_allows_it() -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        member = await begin(plane, b"a")
        assert error_of(await member.acknowledge({0: [(0, 0, [RENEW])]})) == ErrorCode.INVALID_REQUEST
        wrong = await member.fetch(acks={0: [(0, 0, [RENEW])]}, is_renew_ack=True)
        assert wrong.error_code == ErrorCode.INVALID_REQUEST
        assert error_of(await member.acknowledge({0: [(0, 0, [RENEW])]}, is_renew_ack=True)) == 0
        plane.set_group(share_renew_acknowledge_enable="false")
        refused = await member.acknowledge({0: [(0, 0, [RENEW])]}, is_renew_ack=True)
        assert error_of(refused) == ErrorCode.INVALID_RECORD_STATE

    play_share(talk)


def test_a_fetch_waits_for_new_and_for_released_records() -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        member, other = await plane.member(), await plane.member("m2")
        waiting = asyncio.create_task(member.fetch((0,), max_wait_ms=60_000))
        await asyncio.sleep(1)
        assert not waiting.done()
        began = plane.loop.time()
        await plane.produce(b"a")
        assert ranges(await waiting) == [(0, 0, 1)]
        waiting = asyncio.create_task(other.fetch((0,), max_wait_ms=60_000))
        await asyncio.sleep(1)
        assert not waiting.done()
        assert error_of(await member.acknowledge({0: [(0, 0, [RELEASE])]})) == 0
        assert ranges(await waiting) == [(0, 0, 2)]
        assert plane.loop.time() - began < 10

    play_share(talk)


def test_min_bytes_delays_a_fetch_until_its_timeout() -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        await plane.produce(b"a")
        member = await plane.member()
        began = plane.loop.time()
        assert ranges(await member.fetch((0,), max_wait_ms=3000, min_bytes=100_000)) == [(0, 0, 1)]
        assert 2.9 < plane.loop.time() - began < 4

    play_share(talk)


def test_a_failed_write_is_reported_and_rolled_back() -> None:
    async def talk(plane: SharePlane) -> None:
        persister = plane.use_fake_persister()
        member = await begin(plane, b"a", b"b")
        persister.errors = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert error_of(await member.acknowledge({0: [(0, 1, [ACCEPT])]})) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert ranges(await (await plane.member("m2")).fetch((0,))) == []
        assert error_of(await member.acknowledge({0: [(0, 1, [ACCEPT])]})) == 0

    play_share(talk)


def test_acknowledgements_during_a_write_are_written_together() -> None:
    async def talk(plane: SharePlane) -> None:
        persister = plane.use_fake_persister()
        member = await begin(plane, *[b"v"] * 10)
        written = len(persister.writes)
        persister.gate = asyncio.Event()
        managed = plane.state.share_partition_manager.share_partitions[0]
        results: list[object] = []
        for offset in range(10):
            acknowledged = [(offset, offset, [ACCEPT])]
            update = managed.share.acknowledge(member.member_id, acknowledged, plane.loop.time())  # type: ignore[arg-type]
            managed.submit(update, results.append)
        await asyncio.sleep(1)
        assert results == []
        persister.gate.set()
        await plane.until(lambda: len(results) == 10)
        batches = [
            (one.first_offset, one.last_offset) for data in persister.writes[written:] for one in data.state_batches
        ]
        assert batches == [(0, 9)]

    play_share(talk)


def test_an_acknowledgement_fails_when_the_broker_stops_during_its_write() -> None:
    async def talk(plane: SharePlane) -> None:
        persister = plane.use_fake_persister()
        member = await begin(plane, b"a", b"b")
        persister.gate = asyncio.Event()
        managed = plane.state.share_partition_manager.share_partitions[0]
        results: list[KafkaError | None] = []
        acknowledged = [(0, 1, [ACCEPT])]
        update = managed.share.acknowledge(member.member_id, acknowledged, plane.loop.time())  # type: ignore[arg-type]
        managed.submit(update, results.append)
        await asyncio.sleep(1)
        assert results == []
        await managed.stop()
        (error,) = results
        assert error is not None
        assert error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    play_share(talk)


def test_the_state_is_fenced_when_an_administrator_resets_the_offsets() -> None:
    async def talk(plane: SharePlane) -> None:
        persister = plane.use_fake_persister()
        member = await begin(plane, b"a", b"b", b"c")
        persister.reset("g", plane.topic_id(), 1)
        assert error_of(await member.acknowledge({0: [(0, 2, [ACCEPT])]})) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert ranges(await member.fetch(max_wait_ms=1000)) == [(1, 2, 1)]

    play_share(talk)


def test_the_state_is_read_again_after_it_was_deleted_during_a_session() -> None:
    async def talk(plane: SharePlane) -> None:
        persister = plane.use_fake_persister()
        member = await begin(plane, b"a", b"b")
        persister.errors = [ErrorCode.INVALID_REQUEST]
        assert error_of(await member.acknowledge({0: [(0, 1, [ACCEPT])]})) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert ranges(await member.fetch(max_wait_ms=1000)) == [(0, 1, 1)]
        assert error_of(await member.acknowledge({0: [(0, 1, [ACCEPT])]})) == 0

    play_share(talk)


def test_a_leader_that_missed_an_election_reads_the_state_again() -> None:
    async def talk(plane: SharePlane) -> None:
        persister = plane.use_fake_persister()
        await begin(plane, b"a", b"b", b"c")
        partition = plane.partition()
        # The leader of the next epoch delivers five records, and the group finishes all but the last one there.
        await plane.produce(b"d", b"e")
        state = persister.state("g", plane.topic_id())
        state.leader_epoch, state.start_offset = partition.leader_epoch + 1, 4
        plane.state.replica_manager.become_leader(next_order(partition, partition.leader_epoch + 2))
        other = await plane.member("m2")
        assert ranges(await other.fetch((0,), max_wait_ms=1000)) == [(4, 4, 1)]
        assert error_of(await other.acknowledge({0: [(4, 4, [ACCEPT])]})) == 0
        assert state.leader_epoch == partition.leader_epoch and state.offsets == {4: (RecordState.ACKNOWLEDGED, 1)}

    play_share(talk)


def test_a_leader_that_is_elected_again_without_a_leader_in_between_keeps_the_state() -> None:
    async def talk(plane: SharePlane) -> None:
        persister = plane.use_fake_persister()
        member = await begin(plane, b"a", b"b")
        partition = plane.partition()
        plane.state.replica_manager.become_leader(next_order(partition, partition.leader_epoch + 1))
        assert error_of(await member.acknowledge({0: [(0, 1, [ACCEPT])]})) == 0
        assert [data.leader_epoch for data in persister.writes[-1:]] == [partition.leader_epoch]

    play_share(talk)


def test_sessions_have_epochs() -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        await plane.produce(b"a")
        member = await plane.member()
        assert (await member.fetch(epoch=5)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert (await member.fetch(epoch=-1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        wrong = await member.acknowledge({0: [(0, 0, [ACCEPT])]}, epoch=0)
        assert wrong.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        with_acks = await member.fetch(acks={0: [(0, 0, [ACCEPT])]})
        assert with_acks.error_code == ErrorCode.INVALID_REQUEST
        assert ranges(await member.fetch((0,), max_wait_ms=1000)) == [(0, 0, 1)]
        assert (await member.fetch(epoch=7)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        # The same request again, because its response was lost.
        assert (await member.fetch(epoch=0)).error_code == 0
        member.epoch = 1
        final = await member.fetch(epoch=-1, acks={0: [(0, 0, [ACCEPT])]})
        assert only(final).acknowledge_error_code == 0
        assert len(plane.state.share_partition_manager.sessions) == 0
        assert (await member.fetch(epoch=2)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND

    play_share(talk)


def test_the_last_request_of_a_session_and_a_closed_connection_release_records() -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        member = await begin(plane, b"a")
        other = await plane.member("m2")
        await other.fetch((0,))
        assert (await member.acknowledge({0: []}, epoch=-1)).error_code == 0
        assert ranges(await other.fetch(max_wait_ms=5000)) == [(0, 0, 2)]
        third = await plane.member("m3")
        waiting = asyncio.create_task(third.fetch((0,), max_wait_ms=20_000))
        await asyncio.sleep(1)
        other.connection.close()
        assert ranges(await waiting) == [(0, 0, 3)]
        assert plane.state.share_partition_manager.sessions.evictions == 1

    play_share(talk)


def test_sessions_of_two_groups_end_with_their_connection() -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        plane.set_group("g2")
        await plane.produce(b"a")
        member = await plane.member()
        second = Member(member.connection, member.topic_id, "g2", "m1")
        for one in (member, second):
            assert ranges(await one.fetch((0,), max_wait_ms=1000)) == [(0, 0, 1)]
        member.connection.close()
        await asyncio.sleep(1)
        assert len(plane.state.share_partition_manager.sessions) == 0
        assert not plane.state.share_partition_manager.share_partitions

    play_share(talk)


@pytest.mark.parametrize("is_fetch", [True, False])
def test_the_last_request_does_not_end_a_session_that_the_member_opened_after_it(is_fetch: bool) -> None:
    async def talk(plane: SharePlane) -> None:
        persister = plane.use_fake_persister()
        member = await begin(plane, b"a")
        persister.gate = asyncio.Event()
        acks = {0: [(0, 0, [ACCEPT])]}
        send: Callable[..., Coroutine[Any, Any, Any]] = member.fetch if is_fetch else member.acknowledge
        waiting = asyncio.create_task(send(acks=acks, epoch=-1))
        await asyncio.sleep(1)
        again = await plane.member()
        assert (await again.fetch((0,))).error_code == 0
        persister.gate.set()
        assert (await waiting).error_code == 0
        assert (await again.fetch()).error_code == 0

    play_share(talk)


def test_an_invalid_acquire_mode_does_not_change_the_session() -> None:
    async def talk(plane: SharePlane) -> None:
        persister = plane.use_fake_persister()
        member = await begin(plane, b"a")
        acks = {0: [(0, 0, [ACCEPT])]}
        wrong = await member.fetch(acks=acks, share_acquire_mode=3)
        assert wrong.error_code == ErrorCode.INVALID_REQUEST
        await asyncio.sleep(1)
        assert persister.state("g", plane.topic_id()).offsets == {}
        response = await member.fetch(acks=acks)
        assert only(response).acknowledge_error_code == 0

    play_share(talk)


def test_too_many_sessions_are_refused() -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        plane.state.share_partition_manager.sessions._max_entries = 1
        first, second = await plane.member(), await plane.member("m2")
        assert (await first.fetch((0,))).error_code == 0
        began = plane.loop.time()
        assert (await second.fetch((0,), max_wait_ms=2000)).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert plane.loop.time() - began >= 2

    play_share(talk)


def test_records_are_archived_at_the_delivery_limit() -> None:
    async def talk(plane: SharePlane) -> None:
        persister = plane.use_fake_persister()
        plane.set_group(share_delivery_count_limit="2")
        member = await begin(plane, b"a")
        assert error_of(await member.acknowledge({0: [(0, 0, [RELEASE])]})) == 0
        assert ranges(await member.fetch(max_wait_ms=1000)) == [(0, 0, 2)]
        assert error_of(await member.acknowledge({0: [(0, 0, [RELEASE])]})) == 0
        assert ranges(await member.fetch(max_wait_ms=1000)) == []
        assert persister.state("g", plane.topic_id()).offsets[0] == (RecordState.ARCHIVED, 2)

    play_share(talk)


def test_the_record_limit_is_soft_except_in_the_record_limit_mode() -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        for _ in range(3):
            await plane.produce(*[b"v"] * 10)
        member = await plane.member()
        mode = int(AcquireMode.RECORD_LIMIT)
        first = await member.fetch((0,), max_wait_ms=1000, max_records=3, share_acquire_mode=mode)
        assert ranges(first) == [(0, 2, 1)]
        assert ranges(await member.fetch(max_records=3)) == [(3, 9, 1)]
        assert ranges(await member.fetch(max_records=11, batch_size=5)) == [(10, 19, 1), (20, 29, 1)]

    play_share(talk)


def test_no_more_records_are_in_flight_than_the_limit() -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        plane.set_group(share_partition_max_record_locks="100")
        for _ in range(30):
            await plane.produce(*[b"v"] * 10)
        member = await plane.member()
        assert ranges(await member.fetch((0,), max_wait_ms=1000, max_records=60)) == [(0, 59, 1)]
        assert ranges(await member.fetch(max_records=60)) == [(60, 99, 1)]
        assert ranges(await member.fetch(max_records=60)) == []
        assert error_of(await member.acknowledge({0: [(0, 9, [ACCEPT])]})) == 0
        assert ranges(await member.fetch(max_records=60)) == [(100, 109, 1)]

    play_share(talk)


def test_a_group_begins_where_its_settings_say() -> None:
    async def talk(plane: SharePlane) -> None:
        persister = plane.use_fake_persister()
        now_ms = plane.now_ms()
        for ago in (7_200_000, 60_000):
            response = await plane.append(batch(b"v", timestamp=now_ms - ago))
            assert response.error_code == 0
        for group_id, reset, expected in (
            ("early", "earliest", [(0, 0, 1), (1, 1, 1)]),
            ("hour", "by_duration:PT1H", [(1, 1, 1)]),
            ("lowercase", "by_duration:pt1h", [(1, 1, 1)]),
            ("late", "latest", []),
        ):
            plane.set_group(group_id, **{"share.auto.offset.reset": reset})
            member = await plane.member(group_id=group_id)
            assert ranges(await member.fetch((0,), max_wait_ms=500, batch_size=1)) == expected
        # The first offset is durable before records are acquired.
        assert persister.state("late", plane.topic_id()).start_offset == 2

    play_share(talk)


def test_aborted_records_are_not_delivered_to_groups_that_read_committed() -> None:
    async def talk(plane: SharePlane) -> None:
        persister = plane.use_fake_persister()
        plane.set_group(share_isolation_level="read_committed")
        plane.set_group("all")
        log = plane.partition().log
        await plane.produce(b"a")
        for producer_id, kind in ((7, ControlType.ABORT), (8, ControlType.COMMIT)):
            plain = batch(
                b"x",
                b"y",
                timestamp=START_MS,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )
            append(plane, plain)
            marker = control_batch(
                kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=START_MS
            )
            append(plane, marker)
        await plane.produce(b"b")
        assert log.log_end_offset == 8
        member = await plane.member()
        response = await member.fetch((0,), max_wait_ms=1000)
        assert ranges(response) == [(0, 0, 1), (3, 7, 1)]
        assert error_of(await member.acknowledge({0: [(0, 0, [ACCEPT]), (3, 7, [ACCEPT])]})) == 0
        assert plane.state.share_partition_manager.share_partitions[0].share.start_offset == 8
        assert persister.state("g", plane.topic_id()).offsets[3][0] == RecordState.ACKNOWLEDGED
        everything = await plane.member("m2", group_id="all")
        assert ranges(await everything.fetch((0,), max_wait_ms=1000)) == [(0, 7, 1)]

    play_share(talk)


async def begin_with_dead_letters(plane: SharePlane, *values: bytes, **config: str) -> Member:
    """Begin with a group whose dead-letter queue `dlq.t` gets copies of the records."""
    plane.set_group(
        share_delivery_count_limit="2",
        **{"errors.deadletterqueue.topic.name": "dlq.t", "errors.deadletterqueue.copy.record.enable": "true"},
    )
    await plane.create_topic("dlq.t", 1, **{"errors.deadletterqueue.group.enable": "true", **config})
    return await begin(plane, *values)


def dead_letters(plane: SharePlane) -> list[bytes | None]:
    """Return the values of all dead letters."""
    data = plane.partition("dlq.t").log.read(0, 1 << 20).data
    return [None if one.value is None else bytes(one.value) for some in iter_batches(data) for one in some.records()]


def append(plane: SharePlane, records: bytes) -> None:
    results: list[object] = []
    plane.state.replica_manager.append_records(
        [("t", 0, memoryview(bytearray(records)))], AppendRequest(1, 1000, results.extend, COORDINATOR_RULES)
    )
    assert results and not isinstance(results[0], KafkaError), results


def test_rejected_and_exhausted_records_are_written_to_the_dead_letter_queue() -> None:
    async def talk(plane: SharePlane) -> None:
        persister = plane.use_fake_persister()
        plane.set_group(
            share_delivery_count_limit="2",
            **{"errors.deadletterqueue.topic.name": "dlq.t", "errors.deadletterqueue.copy.record.enable": "true"},
        )
        await plane.create_topic("dlq.t", 1, **{"errors.deadletterqueue.group.enable": "true"})
        member = await begin(plane, b"a", b"b", b"c")
        assert error_of(await member.acknowledge({0: [(0, 2, [REJECT, RELEASE, ACCEPT])]})) == 0
        dead = plane.partition("dlq.t")
        await plane.until(lambda: dead.high_watermark == 1)
        await plane.until(
            lambda: persister.state("g", plane.topic_id()).offsets.get(0, (4, 1))[0] == RecordState.ARCHIVED
        )
        assert ranges(await member.fetch(max_wait_ms=1000)) == [(1, 1, 2)]
        assert error_of(await member.acknowledge({0: [(1, 1, [RELEASE])]})) == 0
        await plane.until(lambda: dead.high_watermark == 2)
        data = dead.log.read(0, 1 << 20).data
        letters = [record for one in iter_batches(data) for record in one.records()]
        assert [letter.value for letter in letters] == [b"a", b"b"]
        headers = [{name: bytes(value or b"").decode() for name, value in letter.headers} for letter in letters]
        assert headers[0] == {
            "__dlq.errors.topic": "t",
            "__dlq.errors.partition": "0",
            "__dlq.errors.offset": "0",
            "__dlq.errors.group": "g",
            "__dlq.errors.delivery.count": "1",
            "__dlq.errors.message": "Offset rejected by client.",
        }
        assert headers[1]["__dlq.errors.message"] == "Offset delivery count exceeded the threshold."
        assert headers[1]["__dlq.errors.delivery.count"] == "2"
        share = plane.state.share_partition_manager.share_partitions[0].share
        await plane.until(lambda: share.start_offset == 3)
        assert plane.state.share_partition_manager.metrics.dead_letters_by_group["g"].records == 2

    play_share(talk)


def test_a_record_of_the_last_member_is_written_to_the_dead_letter_queue_once() -> None:
    async def talk(plane: SharePlane) -> None:
        persister = plane.use_fake_persister()
        member = await begin_with_dead_letters(plane, b"a")
        assert error_of(await member.acknowledge({0: [(0, 0, [RELEASE])]})) == 0
        assert ranges(await member.fetch(max_wait_ms=1000)) == [(0, 0, 2)]
        member.connection.close()
        manager = plane.state.share_partition_manager
        await plane.until(lambda: not manager.share_partitions)
        assert len(manager.sessions) == 0
        assert dead_letters(plane) == [b"a"]
        assert persister.state("g", plane.topic_id()).start_offset == 1
        other = await plane.member("m2")
        assert ranges(await other.fetch((0,), max_wait_ms=5000)) == []
        assert dead_letters(plane) == [b"a"]

    play_share(talk)


def test_a_share_partition_that_is_dropped_during_a_write_leaves_its_dead_letters_to_the_next_leader() -> None:
    async def talk(plane: SharePlane) -> None:
        persister = plane.use_fake_persister()
        member = await begin_with_dead_letters(plane, b"a")
        persister.gate = asyncio.Event()
        rejecting = asyncio.create_task(member.acknowledge({0: [(0, 0, [REJECT])]}))
        await asyncio.sleep(1)
        manager = plane.state.share_partition_manager
        manager._remove(manager.share_partitions[0])
        persister.gate.set()
        await rejecting
        await asyncio.sleep(1)
        assert persister.state("g", plane.topic_id()).offsets[0] == (RecordState.ARCHIVING, 1)
        assert dead_letters(plane) == []
        assert ranges(await member.fetch(max_wait_ms=5000)) == []
        assert dead_letters(plane) == [b"a"]
        await plane.until(lambda: persister.state("g", plane.topic_id()).start_offset == 1)

    play_share(talk)


def test_records_are_archived_after_an_unexpected_error_of_their_dead_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        member = await begin_with_dead_letters(plane, b"a", b"b")
        manager = plane.state.share_partition_manager
        share = manager.share_partitions[0].share

        async def fail(*_: object) -> None:
            raise ValueError("a response without the partition")

        with monkeypatch.context() as patch:
            patch.setattr(manager._dlq_manager, "_try_produce", fail)
            assert error_of(await member.acknowledge({0: [(0, 0, [REJECT])]})) == 0
            await plane.until(lambda: share.start_offset == 1, 5)
        assert error_of(await member.acknowledge({0: [(1, 1, [REJECT])]})) == 0
        await plane.until(lambda: share.start_offset == 2, 5)
        assert dead_letters(plane) == [b"b"]

    play_share(talk)


def test_a_dead_letter_that_is_too_large_has_no_copy_and_the_others_follow() -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        # The headers of a dead letter have about 250 bytes.
        member = await begin_with_dead_letters(plane, b"a", b"v" * 700, b"c", **{"max.message.bytes": "800"})
        assert error_of(await member.acknowledge({0: [(0, 2, [REJECT])]})) == 0
        share = plane.state.share_partition_manager.share_partitions[0].share
        await plane.until(lambda: share.start_offset == 3)
        assert dead_letters(plane) == [b"a", None, b"c"]

    play_share(talk)


@pytest.mark.parametrize("may_create", [False, True])
def test_a_missing_dead_letter_queue_is_created_if_the_broker_may(may_create: bool) -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        plane.set_group(**{"errors.deadletterqueue.topic.name": "dlq.new"})
        member = await begin(plane, b"a", b"b")
        assert error_of(await member.acknowledge({0: [(0, 0, [REJECT])]})) == 0
        share = plane.state.share_partition_manager.share_partitions[0].share
        await plane.until(lambda: share.start_offset == 1)
        assert ("dlq.new" in plane.state.metadata) is may_create
        if may_create:
            dead = plane.partition("dlq.new")
            assert dead.high_watermark == 1
            (letter,) = [record for one in iter_batches(dead.log.read(0, 1 << 20).data) for record in one.records()]
            assert (letter.key, letter.value) == (None, None)
            assert plane.state.dynamic_config.topic_config("dlq.new")["errors.deadletterqueue.group.enable"] == "true"

    play_share(talk, settings={"errors.deadletterqueue.auto.create.topics.enable": str(may_create).lower()})


@pytest.mark.parametrize(
    ("topic", "config"), [("other", {"errors.deadletterqueue.group.enable": "true"}), ("dlq.closed", {})]
)
def test_a_topic_that_is_not_a_dead_letter_queue_gets_no_records(topic: str, config: dict[str, str]) -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        plane.set_group(**{"errors.deadletterqueue.topic.name": topic})
        await plane.create_topic(topic, 1, **config)
        member = await begin(plane, b"a", b"b")
        assert error_of(await member.acknowledge({0: [(0, 0, [REJECT])]})) == 0
        share = plane.state.share_partition_manager.share_partitions[0].share
        await plane.until(lambda: share.start_offset == 1)
        assert plane.partition(topic).log_end_offset == 0

    play_share(talk)


def test_records_below_the_log_start_are_given_up() -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        member = await begin(plane, *[b"v"] * 4)
        await plane.produce(b"w")
        plane.partition().delete_records(5)
        assert ranges(await member.fetch()) == []
        assert error_of(await member.acknowledge({0: [(0, 3, [ACCEPT])]})) in (0, ErrorCode.INVALID_RECORD_STATE)
        await plane.produce(b"x")
        assert ranges(await member.fetch(max_wait_ms=1000)) == [(5, 5, 1)]

    play_share(talk)


def test_a_deleted_topic_ends_a_waiting_fetch() -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        await plane.create_topic("gone")
        member = await plane.member(topic="gone")
        waiting = asyncio.create_task(member.fetch((0,), max_wait_ms=60_000))
        await asyncio.sleep(1)
        began = plane.loop.time()
        await plane.delete_topic("gone")
        assert only(await waiting).error_code != 0
        assert plane.loop.time() - began < 30
        after = only(await member.fetch())
        assert after.error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert plane.state.share_partition_manager.share_partitions == []

    play_share(talk)


def test_wrong_requests_are_refused() -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        member = await begin(plane, b"a", b"b", b"c")
        requests: tuple[list[tuple[int, int, list[int]]], ...] = (
            [(2, 1, [1])],
            [(0, 2, [1, 1])],
            [(0, 0, [])],
            [(0, 0, [9])],
            [(0, 0, [-1])],
            [(1, 2, [1]), (0, 0, [1])],
        )
        for wrong in requests:
            assert error_of(await member.acknowledge({0: wrong})) == ErrorCode.INVALID_REQUEST, wrong
        assert error_of(await member.acknowledge({0: [(0, 7, [1])]})) == ErrorCode.INVALID_REQUEST
        assert error_of(await member.acknowledge({1: [(0, 0, [1])]})) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert error_of(await member.acknowledge({7: [(0, 0, [1])]})) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert error_of(await member.acknowledge({0: [(0, 2, [1])]})) == 0
        nameless = await plane.member("")
        assert (await nameless.fetch((0,))).error_code == ErrorCode.INVALID_REQUEST
        long = await plane.member("m" * 37)
        assert (await long.fetch((0,))).error_code == ErrorCode.INVALID_REQUEST
        unknown = await plane.member("m9")
        assert only(await unknown.fetch((5,))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        mode = await plane.member("m8")
        assert (await mode.fetch((0,), share_acquire_mode=3)).error_code == ErrorCode.INVALID_REQUEST

    play_share(talk)


def test_partitions_are_served_in_turn() -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        for index in (0, 1):
            for _ in range(4):
                await plane.produce(b"v", index=index)
        member = await plane.member()
        await member.fetch((0, 1), max_records=0)
        found = []
        for _ in range(8):
            response = await member.fetch(max_wait_ms=500, max_records=1)
            found += [data.partition_index for topic in response.responses for data in topic.partitions]
        assert sorted(found) == [0] * 4 + [1] * 4
        assert found[:4] != [0] * 4

    play_share(talk)


def test_empty_partitions_that_are_loaded_do_not_check_a_waiting_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = 0
    try_complete = DelayedShareFetch.try_complete

    def counted(operation: DelayedShareFetch) -> bool:
        nonlocal checks
        checks += 1
        return try_complete(operation)

    monkeypatch.setattr(DelayedShareFetch, "try_complete", counted)

    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        await plane.create_topic("many", 40)
        member, other = await plane.member(topic="many"), await plane.member("m2", topic="many")
        waiting = asyncio.create_task(member.fetch(tuple(range(40)), max_wait_ms=60_000))
        await asyncio.sleep(1)
        assert not waiting.done()
        assert checks == 1
        await plane.produce(b"a", index=20, topic="many")
        assert acquired(await waiting) == {20: [0]}
        # Records that become available again complete a fetch, too.
        await other.fetch(tuple(range(40)))
        waiting = asyncio.create_task(other.fetch(max_wait_ms=60_000))
        await asyncio.sleep(1)
        assert not waiting.done()
        assert error_of(await member.acknowledge({20: [(0, 0, [RELEASE])]})) == 0
        assert ranges(await waiting) == [(0, 0, 2)]
        assert plane.loop.time() < 30

    play_share(talk)


def test_share_partitions_begin_to_load_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.server.share.share_partition_manager.LOADED_PARTITIONS_PER_TURN", 3)
    events: list[str] = []
    initialize, read_state = ManagedSharePartition.initialize, FakePersister.read_state

    def begin_to_load(managed: ManagedSharePartition) -> None:
        events.append("begin")
        initialize(managed)

    async def read(persister: FakePersister, request: Any) -> Any:
        events.append("read")
        return await read_state(persister, request)

    monkeypatch.setattr(ManagedSharePartition, "initialize", begin_to_load)
    monkeypatch.setattr(FakePersister, "read_state", read)

    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        await plane.create_topic("many", 10)
        await plane.produce(b"a", index=9, topic="many")
        member = await plane.member(topic="many")
        assert acquired(await member.fetch(tuple(range(10)), max_wait_ms=1000)) == {9: [0]}
        assert events[:6] == ["begin"] * 3 + ["read"] * 3
        assert events.count("begin") == 10

    play_share(talk)


def test_a_session_that_ends_while_its_partitions_are_loaded_acquires_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.server.share.share_partition_manager.LOADED_PARTITIONS_PER_TURN", 1)
    initialize = ManagedSharePartition.initialize

    async def talk(plane: SharePlane) -> None:
        manager = plane.state.share_partition_manager
        loaded = 0

        def counted(managed: ManagedSharePartition) -> None:
            nonlocal loaded
            loaded += 1
            initialize(managed)
            if loaded == 2:
                manager.release_session(manager.sessions.get(ShareSessionKey("g", "m1")))

        monkeypatch.setattr(ManagedSharePartition, "initialize", counted)
        plane.use_fake_persister()
        await plane.create_topic("many", 10)
        await plane.produce(b"a", index=0, topic="many")
        member = await plane.member(topic="many")
        response = await member.fetch(tuple(range(10)), max_wait_ms=1000)
        assert (response.error_code, response.responses) == (0, [])
        await asyncio.sleep(1)
        assert loaded == 2
        assert not manager.share_partitions

    play_share(talk)


def test_no_partition_is_read_after_the_bytes_of_a_response_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    acquire = DelayedShareFetch._acquire

    def counted(operation: DelayedShareFetch, managed: ManagedSharePartition, *args: Any, **options: Any) -> Any:
        reads.append(managed.topic_id_partition.partition)
        return acquire(operation, managed, *args, **options)

    monkeypatch.setattr(DelayedShareFetch, "_acquire", counted)

    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        member = await plane.member()
        await member.fetch((0, 1), max_wait_ms=500)
        for index in (0, 1):
            await plane.produce(b"v", index=index)
        reads.clear()
        assert ranges(await member.fetch(max_bytes=1)) == [(0, 0, 1)]
        assert len(reads) == 1
        assert ranges(await member.fetch(max_bytes=1)) == [(0, 0, 1)]

    play_share(talk)


def test_fetches_and_loads_are_measured() -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        metrics = plane.state.share_partition_manager.metrics
        member = await plane.member()
        await member.fetch((0, 1), max_wait_ms=700)
        assert metrics.expired_fetches == 1
        assert metrics.partition_load_time.count == 2
        waiting = asyncio.create_task(member.fetch(max_wait_ms=60_000))
        await asyncio.sleep(2)
        await plane.produce(b"a", b"b", b"c")
        assert ranges(await waiting) == [(0, 2, 1)]
        assert metrics.expired_fetches == 1
        assert list(metrics.in_flight_batch_message_count.last) == [3]
        # A partition without records can be acquired, too.
        assert list(metrics.fetches.fetch_ratio.last) == [100, 100]
        first, second = metrics.fetches_by_group["g"].acquire_time.last
        assert 0.7 <= first < 1 and 2 <= second < 3

    play_share(talk)


class StepClock:
    """A stopwatch for sliced work that moves by a quarter of a slice with each look."""

    def __init__(self, plane: SharePlane, monkeypatch: pytest.MonkeyPatch) -> None:
        self.turns = 0
        """The slices of sliced work that have begun."""
        self._seconds = 0.0
        run = SlicedWork.run

        def counted(work: SlicedWork, *args: Any) -> None:
            self.turns += 1
            run(work, *args)

        monkeypatch.setattr(SlicedWork, "run", counted)
        monkeypatch.setattr(plane.state.sliced_work, "_stopwatch", self)

    def __call__(self) -> float:
        self._seconds += SLICE_SECONDS / 4
        return self._seconds


@pytest.mark.parametrize("waits", [False, True])
def test_a_fetch_of_many_partitions_acquires_a_few_of_them_in_each_turn(
    waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquire = DelayedShareFetch._acquire
    count = 30

    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        await plane.create_topic("many", count)
        member = await plane.member(topic="many")
        await member.fetch(tuple(range(count)), max_wait_ms=500)
        clock = StepClock(plane, monkeypatch)
        acquired_in: Counter[int] = Counter()

        def counted(*args: Any, **options: Any) -> Any:
            acquired_in[clock.turns] += 1
            return acquire(*args, **options)

        monkeypatch.setattr(DelayedShareFetch, "_acquire", counted)
        if waits:
            waiting = asyncio.create_task(member.fetch(max_wait_ms=60_000, min_bytes=count * 68))
            await asyncio.sleep(1)
        for index in range(count):
            await plane.produce(b"a", index=index, topic="many")
        response = await (waiting if waits else member.fetch())
        assert acquired(response) == {index: [0] for index in range(count)}
        assert sum(acquired_in.values()) == count
        assert max(acquired_in.values()) <= 4

    play_share(talk)


def test_a_session_that_ends_between_the_turns_of_an_acquisition_acquires_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    acquire = DelayedShareFetch._acquire
    count = 30

    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        await plane.create_topic("many", count)
        manager = plane.state.share_partition_manager
        member, other = await plane.member(topic="many"), await plane.member("m2", topic="many")
        for one in (member, other):
            await one.fetch(tuple(range(count)), max_wait_ms=500)
        for index in range(count):
            await plane.produce(b"a", index=index, topic="many")
        StepClock(plane, monkeypatch)
        done = 0

        def counted(*args: Any, **options: Any) -> Any:
            nonlocal done
            done += 1
            if done == 10:
                manager.release_session(manager.sessions.get(ShareSessionKey("g", "m1")))
            return acquire(*args, **options)

        monkeypatch.setattr(DelayedShareFetch, "_acquire", counted)
        await member.fetch()
        assert done == 10

    play_share(talk)


@pytest.mark.parametrize("waits", [False, True])
def test_the_acquisition_of_records_counts_for_the_request_quota(waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    acquire = DelayedShareFetch._acquire

    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        await set_quota(plane, "request_percentage", 1.0, client_id="test")
        seconds = 0.0
        plane.state.quotas.stopwatch = lambda: seconds

        def slow(*args: Any, **options: Any) -> Any:
            nonlocal seconds
            seconds += 5.0
            return acquire(*args, **options)

        member = await plane.member()
        assert (await member.fetch((0,), max_wait_ms=500)).throttle_time_ms == 0
        monkeypatch.setattr(DelayedShareFetch, "_acquire", slow)
        if waits:
            waiting = asyncio.create_task(member.fetch(max_wait_ms=60_000))
            await asyncio.sleep(1)
            await plane.produce(b"a")
            response = await waiting
        else:
            await plane.produce(b"a")
            response = await member.fetch()
        assert ranges(response) == [(0, 0, 1)]
        assert response.throttle_time_ms > 0

    play_share(talk)


def test_large_batches_are_sent_from_the_first_acquired_batch_on() -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        for _ in range(4):
            await plane.produce(*[b"v" * 9000] * 10)
        member = await plane.member()
        assert ranges(await member.fetch((0,), max_wait_ms=1000, max_records=20)) == [(0, 19, 1)]
        data = only(await member.fetch(max_records=10))
        assert [one.base_offset for one in iter_batches(data.records)] == [20]

    play_share(talk)
