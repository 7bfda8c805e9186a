"""The consumer against scripted brokers: positions, resets, isolation, truncation, sessions, pausing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.clients.scripted_broker import DROP, SILENCE, ScriptedCluster, play

from barnabas.clients.consumer import Consumer
from barnabas.clients.errors import LogTruncatedError, NoOffsetError
from barnabas.clients.fetched_records import ConsumerRecord
from barnabas.clients.producer import Producer
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.compression import Compression
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.legacy_records import build_message_set
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.record import Record
from barnabas.protocol.record_batch import ControlType, RecordBatchBuilder, control_batch
from barnabas.protocol.topic_partition import TopicPartition

T0 = TopicPartition("t", 0)
OLD_VERSIONS = {
    ApiKey.FETCH: (0, 3),
    ApiKey.LIST_OFFSETS: (0, 1),
    ApiKey.METADATA: (0, 2),
    ApiKey.API_VERSIONS: (0, 0),
}


def consumer(cluster: ScriptedCluster, **settings: Any) -> Consumer:
    defaults: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 0}
    return Consumer(cluster.bootstrap, rng=random.Random(3), **(defaults | settings))


def fill(
    cluster: ScriptedCluster, count: int, *, partition: int = 0, codec: int = 0, each: int = 10, **header: Any
) -> None:
    """Append records `0`, `1`, … after those that are there, `each` a batch."""
    stored = cluster.partitions["t", partition]
    end = stored.end + count
    for first in range(stored.end, end, each):
        builder = RecordBatchBuilder(codec=codec, **header)
        for number in range(first, min(first + each, end)):
            builder.append(None, b"%d" % number, (), 1000 + number)
        stored.store(builder.build(), len(builder))


async def read(c: Consumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    while len(records) < count:
        batch = await c.getmany(timeout_ms=10_000, max_records=count - len(records))
        assert batch, f"only {len(records)} of {count} records came"
        records += [record for some in batch.values() for record in some]
    return records


def offsets(records: list[ConsumerRecord]) -> list[int]:
    return [record.offset for record in records]


@pytest.mark.parametrize("codec", list(Compression))
def test_it_reads_everything_in_order(codec: Compression) -> None:
    async def story(cluster: ScriptedCluster) -> None:
        fill(cluster, 95, codec=codec)
        async with consumer(cluster) as c:
            c.assign([T0])
            records = await read(c, 95)
            assert [(r.offset, r.timestamp, r.value) for r in records] == [(i, 1000 + i, b"%d" % i) for i in range(95)]
            assert await c.position(T0) == 95
            assert c.high_watermark(T0) == 95

    play(story)


def test_it_begins_inside_a_batch() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        fill(cluster, 30)
        async with consumer(cluster) as c:
            c.assign([T0])
            c.seek(T0, 17)
            assert offsets(await read(c, 13)) == list(range(17, 30))

    play(story)


def test_positions_are_looked_up_when_they_are_needed() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        fill(cluster, 30)
        cluster.partitions["t", 0].log_start = 10
        async with consumer(cluster, auto_offset_reset="latest") as c:
            c.assign([T0])
            assert await c.position(T0) == 30
            c.seek_to_beginning()
            assert await c.position(T0) == 10
            c.seek_to_end(T0)
            assert await c.position(T0) == 30
            assert await c.beginning_offsets([T0]) == {T0: 10}
            assert await c.end_offsets([T0]) == {T0: 30}

    play(story)


def test_a_position_the_log_lost_is_reset_or_told() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        fill(cluster, 30)
        cluster.partitions["t", 0].log_start = 10
        async with consumer(cluster) as c:
            c.assign([T0])
            c.seek(T0, 5)
            assert (await read(c, 1))[0].offset == 10
        async with consumer(cluster, auto_offset_reset="none") as c:
            c.assign([T0])
            with pytest.raises(NoOffsetError):
                await c.getmany(timeout_ms=1000)
            c.seek(T0, 5)
            with pytest.raises(NoOffsetError, match="offset 5 of t-0 is out of range"):
                await c.getmany(timeout_ms=1000)
            c.seek(T0, 29)
            assert offsets(await read(c, 1)) == [29]

    play(story)


def test_async_for_yields_records_and_the_position_follows_each() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        fill(cluster, 5)
        async with consumer(cluster) as c:
            c.assign([T0])
            seen = []
            async for record in c:
                seen.append((record.offset, await c.position(T0)))
                if record.offset == 4:
                    break
            assert seen == [(i, i + 1) for i in range(5)]

    play(story)


def test_paused_partitions_give_nothing_and_lose_nothing() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        fill(cluster, 10)
        fill(cluster, 10, partition=1)
        other = TopicPartition("t", 1)
        async with consumer(cluster) as c:
            c.assign([T0, other])
            assert len(await read(c, 4)) == 4
            c.pause(T0)
            assert c.paused == {T0}
            at = await c.position(T0)
            rest = [r for some in (await c.getmany(timeout_ms=1000, max_records=100)).values() for r in some]
            assert {record.partition for record in rest} <= {1}
            c.resume(T0)
            again = await read(c, 10 - at)
            assert {record.partition for record in again} == {0}
            assert offsets(again) == list(range(at, 10))

    play(story, topics={"t": 2})


def test_an_assignment_that_stays_keeps_its_position() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        fill(cluster, 10)
        async with consumer(cluster) as c:
            c.assign([T0])
            await read(c, 4)
            c.assign([T0, TopicPartition("t", 1)])
            assert await c.position(T0) == 4
            with pytest.raises(KafkaError, match="not assigned"):
                await c.position(TopicPartition("t", 2))

    play(story, topics={"t": 3})


def test_read_committed_leaves_out_what_was_aborted() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        stored = cluster.partitions["t", 0]
        one = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
        two = one | {"producer_id": 2}
        fill(cluster, 2, **one)  # 0 1 aborted
        fill(cluster, 2, **two)  # 2 3 committed
        for producer_id, kind in ((1, ControlType.ABORT), (2, ControlType.COMMIT)):  # 4 5
            stored.store(
                control_batch(kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=1), 1
            )
        fill(cluster, 2, **one)  # 6 7 committed
        stored.store(
            control_batch(ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=1), 1
        )
        fill(cluster, 1)  # 9
        stored.aborted = [(1, 0)]
        async with consumer(cluster, isolation_level="read_committed") as c:
            c.assign([T0])
            assert offsets(await read(c, 5)) == [2, 3, 6, 7, 9]
            assert await c.position(T0) == 10
        async with consumer(cluster) as c:
            c.assign([T0])
            assert offsets(await read(c, 7)) == [0, 1, 2, 3, 6, 7, 9]

    play(story)


def test_control_records_at_the_end_move_the_position() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        fill(cluster, 2)
        marker = control_batch(ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=1)
        cluster.partitions["t", 0].store(marker, 1)
        async with consumer(cluster) as c:
            c.assign([T0])
            await read(c, 2)
            await c.getmany(timeout_ms=500)
            assert await c.position(T0) == 3

    play(story)


def test_it_follows_the_leader() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        fill(cluster, 10)
        async with consumer(cluster) as c:
            c.assign([T0])
            await read(c, 10)
            cluster.move("t", 0, leader=2)
            fill(cluster, 10)
            assert offsets(await read(c, 10)) == list(range(10, 20))

    play(story, brokers=2)


@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_a_new_leader_that_lost_records_is_noticed(reset: str) -> None:
    async def story(cluster: ScriptedCluster) -> None:
        fill(cluster, 20)
        stored = cluster.partitions["t", 0]
        async with consumer(cluster, auto_offset_reset=reset) as c:
            c.assign([T0])
            c.seek(T0, 0)
            await read(c, 20)
            # The new leader has only the first 10 records of epoch 0, and others behind them.
            del stored.batches[1:]
            stored.end = 10
            cluster.move("t", 0, leader=2)
            fill(cluster, 30)
            if reset == "none":
                with pytest.raises(LogTruncatedError, match="truncated to 10"):
                    await read(c, 1)
                c.seek(T0, 10)
            assert offsets(await read(c, 30)) == list(range(10, 40))

    play(story, brokers=2)


def fill_with_damage(cluster: ScriptedCluster) -> None:
    """Two batches of ten records, and in the second one bit that is another."""
    fill(cluster, 20)
    stored = cluster.partitions["t", 0]
    base, last, data = stored.batches[1]
    stored.batches[1] = (base, last, data[:-1] + bytes([data[-1] ^ 1]))


def test_damaged_records_are_told_and_not_skipped() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        fill_with_damage(cluster)
        async with consumer(cluster) as c:
            c.assign([T0])
            good = []
            with pytest.raises(KafkaError, match="CORRUPT_MESSAGE") as caught:
                while True:
                    good += await read(c, 1)
            assert offsets(good) == list(range(10))
            assert "from offset 10" in str(caught.value)
            c.seek(T0, 20)
            fill(cluster, 1)
            assert offsets(await read(c, 1)) == [20]

    play(story)


def test_what_is_whole_before_damaged_records_is_read_first() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        fill_with_damage(cluster)
        async with consumer(cluster) as c:
            c.assign([T0])
            assert offsets((await c.getmany(timeout_ms=1000))[T0]) == list(range(10))
            with pytest.raises(KafkaError, match="from offset 10"):
                await c.getmany(timeout_ms=1000)
            assert await c.position(T0) == 10

    play(story)


@pytest.mark.parametrize("refused", [ApiKey.FETCH, ApiKey.LIST_OFFSETS])
def test_the_read_after_one_that_was_told_an_error_tries_again(refused: ApiKey) -> None:
    async def story(cluster: ScriptedCluster) -> None:
        def after(node: int, key: ApiKey, request: Any, response: Any) -> Any:
            if key is refused and refusals:
                topic = response.responses[0] if key is ApiKey.FETCH else response.topics[0]
                topic.partitions[0].error_code = refusals.pop()
            return response

        refusals = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        cluster.after = after
        fill(cluster, 10)
        async with consumer(cluster) as c:
            c.assign([T0])
            await asyncio.sleep(1)  # nothing is under way any more
            with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
                await c.getmany(timeout_ms=1000)
            assert offsets(await read(c, 10)) == list(range(10))

    play(story)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, 12345])
def test_an_unexpected_error_of_the_broker_is_logged_and_tried_again(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(cluster: ScriptedCluster) -> None:
        def after(node: int, key: ApiKey, request: Any, response: Any) -> Any:
            if key is ApiKey.FETCH and refusals:
                response.responses[0].partitions[0].error_code = refusals.pop()
            return response

        refusals = [code, code]
        cluster.after = after
        fill(cluster, 10)
        async with consumer(cluster) as c:
            c.assign([T0])
            assert offsets(await read(c, 10)) == list(range(10))
        assert not refusals

    play(story)
    assert caplog.text.count("UNKNOWN_SERVER_ERROR in a fetch of t-0; trying again") == 2


def test_sessions_send_only_what_changed() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        def after(node: int, key: ApiKey, request: Any, response: Any) -> Any:
            if isinstance(response, FetchResponse):
                response.session_id = 77
            return response

        cluster.after = after
        for partition in range(3):
            fill(cluster, 10, partition=partition)
        async with consumer(cluster) as c:
            c.assign([TopicPartition("t", index) for index in range(3)])
            await read(c, 30)
            fill(cluster, 10, partition=1)
            cluster.requests.clear()
            await c.getmany(timeout_ms=100)
            await c.getmany(timeout_ms=100)
        fetches = cluster.asked(ApiKey.FETCH)
        assert all(request.session_id == 77 for request in fetches)
        epochs = [request.session_epoch for request in fetches]
        assert epochs == list(range(epochs[0], epochs[0] + len(epochs)))
        assert min(sum(len(topic.partitions) for topic in request.topics) for request in fetches) == 0

    play(story, topics={"t": 3})


def test_a_lost_session_begins_anew() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        fill(cluster, 10)
        refusals = [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH]

        def after(node: int, key: ApiKey, request: Any, response: Any) -> Any:
            if isinstance(response, FetchResponse):
                response.session_id = 5
                if request.session_epoch > 0 and refusals:
                    return FetchResponse(error_code=refusals.pop())
            return response

        cluster.after = after
        async with consumer(cluster) as c:
            c.assign([T0])
            await read(c, 10)
            for _ in range(2):
                fill(cluster, 5)
                await read(c, 5)
        assert not refusals
        opened = [r.session_id for r in cluster.asked(ApiKey.FETCH) if r.session_epoch == 0]
        assert opened == [0, 5, 0]

    play(story)


def test_topic_ids_are_used_where_they_are_known() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        fill(cluster, 1)
        async with consumer(cluster) as c:
            c.assign([T0])
            await read(c, 1)
        cluster.versions[ApiKey.METADATA] = (0, 9)
        async with consumer(cluster) as c:
            c.assign([T0])
            await read(c, 1)
        versions = [version for _, key, version, _ in cluster.requests if key is ApiKey.FETCH]
        assert (versions[0], versions[-1]) == (18, 12)

    play(story)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_an_old_broker_is_read(magic: int, codec: Compression) -> None:
    async def story(cluster: ScriptedCluster) -> None:
        cluster.versions = OLD_VERSIONS
        records = [Record(i, 1000 + i, b"k", b"%d" % i) for i in range(5)]
        cluster.partitions["t", 0].store(build_message_set(records, magic=magic, codec=codec), 5)
        async with consumer(cluster) as c:
            c.assign([T0])
            got = await read(c, 5)
            assert [(r.offset, r.value) for r in got] == [(i, b"%d" % i) for i in range(5)]
            assert [r.timestamp for r in got] == [(1000 + i if magic else -1) for i in range(5)]

    play(story)


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_skipped_or_read_twice_whatever_breaks(seed: int) -> None:
    async def story(cluster: ScriptedCluster) -> None:
        chance = random.Random(seed)

        def before(node: int, key: ApiKey, request: Any) -> Any:
            if key in (ApiKey.FETCH, ApiKey.LIST_OFFSETS) and chance.random() < 0.3:
                if chance.random() < 0.5:
                    cluster.move("t", chance.randrange(2), leader=chance.choice([1, 2]))
                    return None
                return DROP
            return None

        cluster.before = before
        for _ in range(10):
            fill(cluster, 7, partition=0, each=3)
            fill(cluster, 7, partition=1, each=4)
        async with consumer(cluster, retry_backoff_ms=10) as c:
            c.assign([T0, TopicPartition("t", 1)])
            records = await read(c, 140)
        for partition in range(2):
            assert offsets([r for r in records if r.partition == partition]) == list(range(70))

    play(story, brokers=2, topics={"t": 2}, seed=seed)


def test_waiting_ends_in_time() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        async with consumer(cluster, fetch_max_wait_ms=100) as c:
            c.assign([T0])
            started = cluster.loop.time()
            assert await c.getmany(timeout_ms=2000) == {}
            assert 1.99 < cluster.loop.time() - started < 2.2
            task = asyncio.create_task(c.getone())
            await asyncio.sleep(1)
            assert not task.done()
            fill(cluster, 1)
            assert (await task).offset == 0

    play(story)


def test_only_topics_that_are_assigned_are_asked_for() -> None:
    """Where topics are created because they are asked for, one that was deleted would come back."""

    def asked_since(cluster: ScriptedCluster, before: int) -> list[list[str]]:
        return [[topic.name for topic in request.topics] for request in cluster.asked(ApiKey.METADATA)[before:]]

    async def story(cluster: ScriptedCluster) -> None:
        fill(cluster, 1)
        async with consumer(cluster, metadata_max_age_ms=10_000) as c:
            c.assign([T0, TopicPartition("u", 0)])
            assert offsets(await read(c, 1)) == [0]
            assert await c.end_offsets([TopicPartition("v", 0)]) == {TopicPartition("v", 0): 0}
            assert await c.partitions_for("w") == [0]
            before = len(cluster.asked(ApiKey.METADATA))
            await c.getmany(timeout_ms=30_000)
            assert asked_since(cluster, before) == [["t", "u"]] * 2
            c.assign([T0])
            before = len(cluster.asked(ApiKey.METADATA))
            await c.getmany(timeout_ms=30_000)
            assert asked_since(cluster, before)[-1] == ["t"]
            c.assign([TopicPartition("u", 0), T0])
            fill(cluster, 1)
            assert offsets(await read(c, 1)) == [1]

    play(story, topics={"t": 1, "u": 1, "v": 1, "w": 1})


def test_timeouts_end_an_attempt_that_a_silent_broker_does_not_answer() -> None:
    """Each call names less than the 30 seconds that the connection gives a request."""

    async def story(cluster: ScriptedCluster) -> None:
        silent: set[ApiKey] = set()
        cluster.before = lambda node, key, request: SILENCE if key in silent else None
        calls: list[tuple[ApiKey, Callable[[Consumer, Producer], Awaitable[Any]]]] = [
            (ApiKey.METADATA, lambda c, p: c.partitions_for("u", timeout_ms=500)),
            (ApiKey.METADATA, lambda c, p: p.send("u", b"v")),
            (ApiKey.METADATA, lambda c, p: p.partitions_for("u")),
            (ApiKey.LIST_OFFSETS, lambda c, p: c.end_offsets([T0])),
            (ApiKey.LIST_OFFSETS, lambda c, p: c.beginning_offsets([T0])),
            (ApiKey.LIST_OFFSETS, lambda c, p: c.offsets_for_times({T0: 5})),
        ]
        for key, call in calls:
            silent.clear()
            one = consumer(cluster, default_api_timeout_ms=500)
            async with one, Producer(cluster.bootstrap, rng=random.Random(1), max_block_ms=500) as other:
                await one.partitions_for("t")
                silent.add(key)
                began = cluster.loop.time()
                with pytest.raises(KafkaError) as caught:
                    await call(one, other)
                assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
                assert 0.49 < cluster.loop.time() - began < 0.6

    play(story, topics={"t": 1})


def test_group_calls_keep_their_timeout_with_a_silent_coordinator() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        cluster.versions[ApiKey.FIND_COORDINATOR] = (0, 4)
        cluster.before = lambda node, key, request: SILENCE if key is ApiKey.FIND_COORDINATOR else None
        async with consumer(cluster, group_id="g", enable_auto_commit=False) as one:
            one.assign([T0])
            one.seek(T0, 0)
            for call in (one.commit({T0: 1}, timeout_ms=500), one.committed([T0], timeout_ms=500)):
                began = cluster.loop.time()
                with pytest.raises(KafkaError) as caught:
                    await call
                assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
                assert cluster.loop.time() - began < 0.6

    play(story, topics={"t": 1})
