"""The share consumer against scripted brokers: acknowledgements, sessions, locks, leader changes, errors."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

import pytest
from tests.clients.scripted_broker import DROP, SILENCE
from tests.clients.share.scripted_share_group import ScriptedShareGroup, play
from tests.waiting import until

from barnabas.clients import AcknowledgeType, ShareConsumer, ShareRecord
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
T0 = TopicPartition("t", 0)


def consumer(group: ScriptedShareGroup, **settings: Any) -> ShareConsumer:
    seed = settings.pop("seed", 3)
    return ShareConsumer(group.bootstrap, "workers", ["t"], rng=random.Random(seed), **settings)


async def read(c: ShareConsumer, count: int) -> list[ShareRecord]:
    records: list[ShareRecord] = []
    while len(records) < count:
        batch = await c.getmany(timeout_ms=10_000, max_records=count - len(records))
        assert batch, f"only {len(records)} of {count} records came"
        records += [record for some in batch.values() for record in some]
    return records


def test_implicit_mode_accepts_what_was_read_when_the_next_record_is_taken_and_at_the_end() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.fill(25)
        async with consumer(group) as c:
            seen = []
            async for record in c:
                assert record.offset not in group.done(ACCEPT)
                assert (record.value, record.delivery_count) == (b"%d" % record.offset, 1)
                seen.append(record.offset)
                if len(seen) == 25:
                    break
        assert seen == group.done(ACCEPT) == list(range(25))
        assert group.members == group.sessions == {}

    play(story)


def test_a_record_whose_processing_raised_is_released_and_the_ones_before_it_are_accepted() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.fill(10)
        with pytest.raises(ZeroDivisionError):
            async with consumer(group) as c:
                async for record in c:
                    1 // (4 - record.offset)
        assert group.done(ACCEPT) == [0, 1, 2, 3]
        assert group.shared["t", 0].acquired == {}
        async with consumer(group, seed=4) as c:
            assert [r.delivery_count for r in await read(c, 6)] == [2] * 6

    play(story)


def test_close_in_a_finally_block_after_an_error_releases_as_well() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.fill(3)
        c = await consumer(group).start()
        with pytest.raises(ZeroDivisionError):
            try:
                await c.getone()
                await c.getone()
                raise ZeroDivisionError
            finally:
                await c.close()
        assert group.done(ACCEPT) == [0]
        assert group.shared["t", 0].acquired == {}

    play(story)


def test_a_cancelled_read_loses_no_record_and_accepts_what_was_processed() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.fill(3)
        seen: list[int] = []

        async def work() -> None:
            async with consumer(group) as c:
                async for record in c:
                    assert record.offset not in seen
                    seen.append(record.offset)

        task = asyncio.ensure_future(work())
        await until(lambda: len(seen) == 3)
        await asyncio.sleep(0.2)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert group.done(ACCEPT) == [0, 1, 2]
        assert group.members == {}

    play(story)


def test_a_second_cancellation_does_not_interrupt_the_acknowledgements_of_close() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.fill(1)
        closing = asyncio.Event()

        async def work() -> None:
            c = await consumer(group).start()
            await c.getone()
            closing.set()
            await c.close()

        task = asyncio.ensure_future(work())
        await closing.wait()
        task.cancel()
        await asyncio.wait([task])
        await until(lambda: group.done(ACCEPT) == [0] and not group.members)

    play(story)


def test_records_are_acknowledged_one_by_one_in_explicit_mode() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.fill(4)
        async with consumer(group, share_acknowledgement_mode="explicit") as c:
            kept = {}
            async for record in c:
                if record.offset == 0:
                    await record.accept()
                    assert group.done(ACCEPT) == [0]
                elif record.offset == 1:
                    await record.reject()
                    assert group.done(REJECT) == [1]
                elif record.offset == 2 and record.delivery_count == 1:
                    await record.release()
                elif record.offset == 2:
                    assert record.delivery_count == 2
                    await record.accept()
                    break
                else:
                    kept[record.offset] = record
        assert group.done(ACCEPT) == [0, 2]
        assert list(kept) == [3]
        assert group.shared["t", 0].acquired == {}, "the end of the session releases it"

    play(story)


def test_an_explicit_acknowledgement_counts_in_implicit_mode() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.fill(3)
        async with consumer(group) as c:
            records = await read(c, 3)
            await records[1].reject()
        assert group.done(ACCEPT) == [0, 2]
        assert group.done(REJECT) == [1]

    play(story)


def test_a_renewed_record_stays_locked() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.lock_ms = 1_000
        group.fill(1)
        async with consumer(group, share_acknowledgement_mode="explicit") as c:
            record = await c.getone()
            for _ in range(5):
                await asyncio.sleep(0.7)
                await record.renew()
            await record.accept()
            assert c.acquisition_lock_timeout_ms == 1_000
        assert group.done(ACCEPT) == [0]
        assert group.shared["t", 0].deliveries == {0: 1}

    play(story)


def test_a_broker_without_renewals_refuses_them_alone() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.versions[ApiKey.SHARE_FETCH] = group.versions[ApiKey.SHARE_ACKNOWLEDGE] = (1, 1)
        group.fill(1)
        async with consumer(group, share_acknowledgement_mode="explicit") as c:
            record = await c.getone()
            with pytest.raises(KafkaError, match="UNSUPPORTED_VERSION"):
                await record.renew()
            await record.accept()
        assert group.done(ACCEPT) == [0]

    play(story)


def test_an_expired_record_is_not_returned_and_its_acknowledgement_fails() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.lock_ms = 1_000
        group.fill(2)
        async with consumer(group, share_acknowledgement_mode="explicit") as c:
            record = await c.getone()
            await asyncio.sleep(1.5)
            with pytest.raises(KafkaError, match="INVALID_RECORD_STATE"):
                await record.accept()
            again = await read(c, 2)
            assert sorted((r.offset, r.delivery_count) for r in again) == [(0, 2), (1, 2)]
            await asyncio.gather(*(r.accept() for r in again))
        assert group.done(ACCEPT) == [0, 1]

    play(story)


def test_acknowledgements_in_several_tasks_share_requests() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.fill(200)
        async with consumer(group, share_acknowledgement_mode="explicit") as c:
            records = await read(c, 200)
            await asyncio.gather(*(record.accept() for record in records))
            assert len(group.asked(ApiKey.SHARE_ACKNOWLEDGE)) <= 3
        assert group.done(ACCEPT) == list(range(200))

    play(story)


def test_acknowledgements_travel_with_the_next_fetch() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.fill(20)
        async with consumer(group, max_poll_records=5) as c:
            await read(c, 20)
            assert len(group.done(ACCEPT)) == 15
            assert group.asked(ApiKey.SHARE_ACKNOWLEDGE) == []

    play(story)


def test_acknowledgements_that_no_fetch_takes_are_sent_soon() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.fill(3)
        async with consumer(group) as c:
            await c.getone()
            await c.getone()
            await until(lambda: group.done(ACCEPT) == [0], seconds=1)

    play(story)


def test_commit_returns_results_by_partition_and_the_callback_gets_the_offsets() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.fill(2)
        group.fill(2, partition=1)
        async with consumer(group) as c:
            calls = []
            c.set_acknowledgement_commit_callback(lambda offsets, error: calls.append((offsets, error and error.code)))
            await read(c, 4)
            group.acknowledge_error["t", 1] = ErrorCode.INVALID_RECORD_STATE
            results = await c.commit()
            assert {tp: error and error.code for tp, error in results.items()} == {
                T0: None,
                TopicPartition("t", 1): ErrorCode.INVALID_RECORD_STATE,
            }
            assert sorted(calls, key=str) == [
                ({T0: {0, 1}}, None),
                ({TopicPartition("t", 1): {0, 1}}, ErrorCode.INVALID_RECORD_STATE),
            ]
            assert await c.commit() == {}

    play(story, partitions=2)


@pytest.mark.parametrize("commits", [True, False])
def test_an_exception_of_the_callback_does_not_stop_other_acknowledgements(commits: bool) -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.fill(2)
        group.fill(2, partition=1)
        partitions: list[TopicPartition] = []

        def fail(offsets: Mapping[TopicPartition, set[int]], error: KafkaError | None) -> None:
            partitions.extend(offsets)
            raise ZeroDivisionError

        async with consumer(group) as c:
            c.set_acknowledgement_commit_callback(fail)
            await read(c, 4)
            if commits:
                assert list((await c.commit(timeout_ms=1000)).values()) == [None, None]
        assert sorted(partitions) == [T0, TopicPartition("t", 1)]
        assert group.sessions == {}

    play(story, partitions=2)


def test_acknowledgements_that_were_given_up_take_no_other_record() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.fill(1)
        async with consumer(group, share_acknowledgement_mode="explicit", default_api_timeout_ms=2_000) as c:
            record = await c.getone()
            (node,) = c._requests._nodes.values()
            node.retry_at = group.loop.time() + 3
            given_up = record.release()
            await asyncio.sleep(2.5)
            c._requests.wake()
            with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
                await given_up
            with pytest.raises(RuntimeError, match="already sent"):
                record.accept()

    play(story)


def test_a_record_is_acknowledged_once() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.fill(1)
        async with consumer(group, share_acknowledgement_mode="explicit") as c:
            record = await c.getone()
            record.release()
            await record.accept()  # replaces the release, which was not sent yet
            with pytest.raises(RuntimeError, match="already sent"):
                record.release()
        assert group.done(ACCEPT) == [0]

    play(story)


@pytest.mark.parametrize("error", [ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH])
def test_a_lost_session_is_opened_again(error: ErrorCode) -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.fill(5)
        async with consumer(group) as c:
            await read(c, 5)
            if error is ErrorCode.SHARE_SESSION_NOT_FOUND:
                group.sessions.clear()
            else:
                group.sessions = dict.fromkeys(group.sessions, 77)
            group.fill(5)
            assert {r.offset for r in await read(c, 5)} == {5, 6, 7, 8, 9}
        assert group.done(ACCEPT) == [5, 6, 7, 8, 9], "the acknowledgements of the lost session have failed"

    play(story)


def test_records_of_a_broken_connection_are_delivered_again() -> None:
    """The broker releases them; the records that waited in the client are not returned."""

    async def story(group: ScriptedShareGroup) -> None:
        group.fill(5)
        async with consumer(group, share_acknowledgement_mode="explicit") as c:
            records = await read(c, 3)
            dropped = iter([DROP])
            group.before = lambda node, key, request: next(dropped, None) if key is ApiKey.SHARE_ACKNOWLEDGE else None
            with pytest.raises(KafkaError, match="NETWORK_EXCEPTION"):
                await records[0].accept()  # whether the broker received this one is unknown
            group.shared["t", 0].acquired.clear()
            with pytest.raises(KafkaError, match="INVALID_RECORD_STATE"):
                await records[1].accept()
            again = await read(c, 5)
            assert [record.delivery_count for record in again] == [2] * 5
            await asyncio.gather(*(record.accept() for record in again))
        assert group.done(ACCEPT) == [0, 1, 2, 3, 4]

    play(story)


def test_a_temporary_error_of_acknowledgements_is_retried() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.fill(2)
        async with consumer(group, share_acknowledgement_mode="explicit") as c:
            first, second = await read(c, 2)
            group.acknowledge_error["t", 0] = ErrorCode.COORDINATOR_NOT_AVAILABLE
            await first.accept()
            await second.accept()
        assert group.done(ACCEPT) == [0, 1]

    play(story)


def test_a_new_leader_delivers_and_the_old_one_refuses() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.fill(2)
        async with consumer(group, share_acknowledgement_mode="explicit") as c:
            first, _ = await read(c, 2)
            group.shared["t", 0].acquired.clear()
            group.move("t", 0, 2)
            with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
                await first.accept()
            again = await read(c, 2)
            assert [record.delivery_count for record in again] == [2, 2]
            await asyncio.gather(*(record.accept() for record in again))
            assert {node for node, key, *_ in group.requests if key is ApiKey.SHARE_FETCH} == {1, 2}
        assert group.done(ACCEPT) == [0, 1]

    play(story, brokers=2)


def test_a_member_that_the_group_has_removed_joins_again_with_its_id() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.fill(1)
        async with consumer(group) as c:
            await read(c, 1)
            (member,) = group.members
            group.members.clear()
            await asyncio.sleep(1)
            group.fill(1)
            await read(c, 1)
            assert list(group.members) == [member]
            epochs = [request.member_epoch for request in group.asked(ApiKey.SHARE_GROUP_HEARTBEAT)]
            assert epochs.count(0) == 2

    play(story)


def test_a_member_that_does_not_read_leaves_and_comes_back() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.fill(1)
        async with consumer(group, max_poll_interval_ms=2_000) as c:
            await read(c, 1)
            await asyncio.sleep(3)
            assert group.members == {}
            group.fill(1)
            await read(c, 1)
            assert group.members

    play(story)


def test_members_share_one_partition() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.fill(100)
        seen: list[int] = []

        async def work(number: int) -> None:
            async with consumer(group, seed=number, max_poll_records=7) as c:
                while len(group.done(ACCEPT)) < 100:
                    for some in (await c.getmany(timeout_ms=200)).values():
                        seen.extend(record.offset for record in some)
                    await asyncio.sleep(0.01)

        await asyncio.gather(*(work(number) for number in range(5)))
        assert sorted(seen) == list(range(100))

    play(story)


def test_record_limit_mode_fetches_from_one_broker_at_a_time() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        running = set()
        both = []

        def before(node: int, key: ApiKey, request: Any) -> None:
            if key is ApiKey.SHARE_FETCH:
                running.add(node)
                both.append(len(running))

        def after(node: int, key: ApiKey, request: Any, response: Any) -> Any:
            running.discard(node)
            return response

        group.before, group.after = before, after
        group.fill(30)
        group.fill(30, partition=1)
        async with consumer(group, share_acquire_mode="record_limit", max_poll_records=4) as c:
            seen = 0
            while seen < 60:
                some = await c.getmany(timeout_ms=10_000)
                assert sum(map(len, some.values())) <= 4
                seen += sum(map(len, some.values()))
        assert {request.max_records for request in group.asked(ApiKey.SHARE_FETCH)} == {4}
        assert {request.share_acquire_mode for request in group.asked(ApiKey.SHARE_FETCH)} == {1}
        assert len(group.done(ACCEPT)) == len(group.done(ACCEPT, partition=1)) == 30

    play(story, brokers=2, partitions=2)


def test_a_cluster_without_share_groups_is_reported_at_once() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        del group.versions[ApiKey.SHARE_GROUP_HEARTBEAT]
        async with consumer(group) as c:
            with pytest.raises(KafkaError, match="does not support share groups"):
                await c.getmany(timeout_ms=60_000)

    play(story)


def test_reads_without_a_timeout_fetch_in_the_background() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.fill(3)
        async with consumer(group) as c:
            seen: list[ShareRecord] = []

            async def poll() -> None:
                while len(seen) < 3:
                    seen.extend(record for some in (await c.getmany()).values() for record in some)
                    await asyncio.sleep(0.1)

            await asyncio.wait_for(poll(), 10)

    play(story)


def test_a_record_of_a_closed_consumer_cannot_be_acknowledged() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.fill(2)
        async with consumer(group, share_acknowledgement_mode="explicit") as c:
            first, second = await read(c, 2)
            await first.accept()
        with pytest.raises(RuntimeError, match="closed"):
            second.accept()

    play(story)


def test_commit_reports_a_broker_that_does_not_respond_in_time() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.fill(1)
        async with consumer(group, request_timeout_ms=5_000) as c:
            await read(c, 1)
            group.before = lambda node, key, request: SILENCE if key is ApiKey.SHARE_ACKNOWLEDGE else None
            started = group.loop.time()
            (error,) = (await c.commit(timeout_ms=1_000)).values()
            assert error is not None
            assert error.code is ErrorCode.REQUEST_TIMED_OUT
            assert group.loop.time() - started < 1.5
        assert group.loop.time() - started < 30

    play(story)


def test_unsubscribe_leaves_and_a_later_subscription_joins() -> None:
    async def story(group: ScriptedShareGroup) -> None:
        group.fill(1)
        async with consumer(group) as c:
            await read(c, 1)
            await c.unsubscribe()
            assert group.members == {}
            assert c.subscription == c.assignment == set()
            with pytest.raises(RuntimeError, match="not subscribed"):
                await c.getone()
            c.subscribe(["t"])
            group.fill(1)
            await read(c, 1)
        assert group.done(ACCEPT) == [0, 1]

    play(story)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"share_acknowledgement_mode": "auto"}, "share_acknowledgement_mode: invalid value 'auto'. Expected one of"),
        ({"share_acquire_mode": "all"}, "share_acquire_mode: invalid value 'all'"),
        ({"max_poll_records": 0}, "max_poll_records: invalid value 0"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ShareConsumer("localhost:9092", "workers", ["t"], **settings)
