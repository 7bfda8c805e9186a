"""Share sessions and records in flight while topics, settings and epochs change, and hostile acknowledgements."""

from __future__ import annotations

import pytest
from tests.server.share.share_plane import SharePlane, only, play_share, ranges
from tests.server.share.test_share_fetch import ACCEPT, REJECT, RELEASE, begin, error_of

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.share_fetch import ForgottenTopic
from barnabas.server.share.share_session import MAX_EPOCH, ShareSessionKey

LAST_OFFSET = 2**63 - 1


def test_the_epoch_of_a_session_continues_after_the_largest_one() -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        member = await begin(plane, b"a")
        session = plane.state.share_partition_manager.sessions.get(ShareSessionKey("g", "m1"))
        session.epoch = member.epoch = MAX_EPOCH
        assert (await member.fetch()).error_code == 0
        # 0 would begin another session.
        assert session.epoch == 1
        assert (await member.fetch(epoch=MAX_EPOCH)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert error_of(await member.acknowledge({0: [(0, 0, [ACCEPT])]}, epoch=1)) == 0

    play_share(talk)


def test_a_topic_that_was_deleted_and_created_again_has_no_records_in_flight() -> None:
    async def talk(plane: SharePlane) -> None:
        persister = plane.use_fake_persister()
        await plane.create_topic("again")
        await plane.produce(b"a", b"b", topic="again")
        member = await plane.member(topic="again")
        assert ranges(await member.fetch((0,), max_wait_ms=1000)) == [(0, 1, 1)]
        former = plane.topic_id("again")
        await plane.delete_topic("again")
        assert plane.state.share_partition_manager.share_partitions == []
        assert error_of(await member.acknowledge({0: [(0, 0, [ACCEPT])]})) == ErrorCode.UNKNOWN_TOPIC_ID
        await plane.create_topic("again")
        await plane.produce(b"c", topic="again")
        response = await member.fetch(acks={0: [(1, 1, [ACCEPT])]})
        assert only(response).error_code == only(response).acknowledge_error_code == ErrorCode.UNKNOWN_TOPIC_ID
        # The session goes on with the new topic.
        member.topic_id = plane.topic_id("again")
        assert member.topic_id != former
        response = await member.fetch((0,), max_wait_ms=1000)
        (found,) = (topic for topic in response.responses if topic.topic_id == member.topic_id)
        assert [(one.first_offset, one.delivery_count) for one in found.partitions[0].acquired_records] == [(0, 1)]
        assert error_of(await member.acknowledge({0: [(0, 0, [ACCEPT])]})) == 0
        assert persister.state("g", former).offsets == {}
        assert list(persister.state("g", member.topic_id).offsets) == [0]

    play_share(talk)


def test_settings_of_a_group_change_while_records_are_locked() -> None:
    async def talk(plane: SharePlane) -> None:
        persister = plane.use_fake_persister()
        member = await begin(plane, b"a", b"b", b"c")
        began = plane.loop.time()
        plane.set_group(share_record_lock_duration_ms="15000", share_delivery_count_limit="2")
        # The locks keep their duration, the next ones have the new one.
        other = await plane.member("m2")
        assert ranges(await other.fetch((0,), max_wait_ms=60_000)) == [(0, 2, 2)]
        assert 29 < plane.loop.time() - began < 32
        assert error_of(await member.acknowledge({0: [(0, 0, [ACCEPT])]})) == ErrorCode.INVALID_RECORD_STATE
        assert error_of(await other.acknowledge({0: [(0, 0, [RELEASE])]})) == 0
        # At the new limit of deliveries the records are archived: the first one now, the others with their locks.
        assert ranges(await member.fetch(max_wait_ms=20_000)) == []
        assert persister.state("g", plane.topic_id()).start_offset == 3
        plane.set_group(share_partition_max_record_locks="100", share_isolation_level="read_committed")
        await plane.produce(*[b"v"] * 150)
        assert ranges(await member.fetch(max_wait_ms=1000, batch_size=100)) == [(3, 102, 1)]
        assert ranges(await other.fetch()) == []

    play_share(talk)


@pytest.mark.parametrize(
    ("acknowledged", "code"),
    [
        ([(0, 2, [ACCEPT]), (2, 3, [RELEASE])], ErrorCode.INVALID_RECORD_STATE),
        ([(0, 2, [ACCEPT]), (1, 3, [RELEASE])], ErrorCode.INVALID_REQUEST),
        ([(0, 3, [ACCEPT]), (0, 3, [ACCEPT])], ErrorCode.INVALID_REQUEST),
        ([(0, LAST_OFFSET, [ACCEPT])], ErrorCode.INVALID_REQUEST),
        ([(LAST_OFFSET, LAST_OFFSET, [ACCEPT])], ErrorCode.INVALID_REQUEST),
        ([(-LAST_OFFSET - 1, LAST_OFFSET, [ACCEPT])], ErrorCode.INVALID_REQUEST),
        ([(-2, 3, [ACCEPT])], ErrorCode.INVALID_REQUEST),
        ([(0, 3, [ACCEPT] * 3 + [REJECT + 2])], ErrorCode.INVALID_REQUEST),
        ([(0, 1, [ACCEPT]), (4, 4, [ACCEPT])], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_wrong_range_undoes_all_ranges_of_its_partition(
    acknowledged: list[tuple[int, int, list[int]]], code: ErrorCode
) -> None:
    async def talk(plane: SharePlane) -> None:
        persister = plane.use_fake_persister()
        member = await begin(plane, *[b"v"] * 4)
        assert error_of(await member.acknowledge({0: acknowledged})) == code
        (managed,) = plane.state.share_partition_manager.share_partitions
        managed.share.check_invariants()
        assert persister.state("g", plane.topic_id()).offsets == {}
        # The member still has all of its records.
        assert error_of(await member.acknowledge({0: [(0, 3, [ACCEPT])]})) == 0
        managed.share.check_invariants()

    play_share(talk)


def test_partitions_that_a_session_forgets_keep_the_records_of_the_member() -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        member = await begin(plane, b"a", b"b")
        gone = [ForgottenTopic(topic_id=plane.topic_id(), partitions=[0, 0, 5, -1])]
        assert (await member.fetch(forgotten_topics_data=gone)).error_code == 0
        await plane.produce(b"c")
        assert (await member.fetch(max_wait_ms=100)).responses == []
        assert error_of(await member.acknowledge({0: [(0, 1, [ACCEPT])]})) == 0
        # Added and forgotten by one request.
        assert (await member.fetch((0,), forgotten_topics_data=gone)).responses == []
        assert ranges(await member.fetch((0,), max_wait_ms=1000)) == [(2, 2, 1)]

    play_share(talk)
