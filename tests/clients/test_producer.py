"""The producer against scripted brokers: batches, order, retries, limits, and what it tells about each record."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from tests.clients.scripted_broker import DROP, SILENCE, ScriptedCluster, StoredPartition, play

from barnabas.clients.errors import (
    BrokerUnreachableError,
    BufferFullError,
    DeliveryTimeoutError,
    UnsupportedVersionError,
)
from barnabas.clients.partitioner import partition_of_key
from barnabas.clients.producer import Producer
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.init_producer_id import InitProducerIdResponse
from barnabas.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.protocol.record_batch import iter_batches


def producer(cluster: ScriptedCluster, **settings: Any) -> Producer:
    return Producer(cluster.bootstrap, rng=random.Random(7), wall_clock_ms=lambda: 1234, **settings)


def values(cluster: ScriptedCluster, topic: str = "t", partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.records(topic, partition)]


def refusal(request: Any, code: int, **fields: Any) -> ProduceResponse:
    """A response that refuses all partitions of a request."""
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1, **fields)
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def test_a_record_arrives_whole_and_its_metadata_tells_where() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        async with producer(cluster) as p:
            await p.send_and_wait("t", b"first")
            headers = [("a", b"1"), ("b", None)]
            metadata = await p.send_and_wait("t", b"value", key=b"key", headers=headers, timestamp_ms=99)
        assert metadata == ("t", 0, 1, 99, -1)
        first, second = cluster.records("t")
        assert (first.timestamp, first.key, first.value) == (1234, None, b"first")
        assert (second.timestamp, second.key, second.value, list(second.headers)) == (99, b"key", b"value", headers)

    play(story)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_sent_within_linger_share_a_batch(codec: str) -> None:
    async def story(cluster: ScriptedCluster) -> None:
        async with producer(cluster, linger_ms=50, compression=codec) as p:
            futures = [await p.send("t", b"%d" % i) for i in range(100)]
            assert [metadata.offset for metadata in await asyncio.gather(*futures)] == list(range(100))
        assert len(cluster.asked(ApiKey.PRODUCE)) == 1
        assert values(cluster) == [b"%d" % i for i in range(100)]

    play(story)


def test_a_batch_goes_after_linger_and_at_once_when_full() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        async with producer(cluster, linger_ms=1000, batch_size=500) as p:
            await p.partitions_for("t")
            started = cluster.loop.time()
            await p.send_and_wait("t", b"x")
            assert 1.0 <= cluster.loop.time() - started < 1.2
            started = cluster.loop.time()
            full = await p.send("t", b"x" * 400)
            last = await p.send("t", b"y" * 400)
            await full
            assert cluster.loop.time() - started < 0.1
            assert not last.done()

    play(story)


def test_flush_does_not_wait_for_linger() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        async with producer(cluster, linger_ms=60_000) as p:
            future = await p.send("t", b"x")
            started = cluster.loop.time()
            await p.flush()
            assert future.done()
            assert cluster.loop.time() - started < 1

    play(story)


def test_flush_waits_for_records_for_which_nobody_waits() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        async with producer(cluster, linger_ms=60_000) as p:
            (await p.send("t", b"x")).cancel()
            await p.flush()
            assert values(cluster) == [b"x"]

    play(story)


def test_flush_waits_for_every_part_of_a_batch_that_was_split() -> None:
    """What was in the middle comes last: it has to be sent again."""

    async def story(cluster: ScriptedCluster) -> None:
        cluster.max_message_bytes = 250

        def before(node: int, key: ApiKey, request: Any) -> Any:
            if key is ApiKey.PRODUCE and refusals:
                (batch,) = iter_batches(request.topic_data[0].partition_data[0].records)
                if [record.value for record in batch.records()] == [bytes([1]) * 100]:
                    refusals.pop()
                    return refusal(request, ErrorCode.NOT_ENOUGH_REPLICAS)
            return None

        refusals = [None]
        cluster.before = before
        async with producer(cluster, linger_ms=60_000, acks=1, retry_backoff_ms=1000) as p:
            sent = [await p.send("t", bytes([number]) * 100) for number in range(4)]
            await p.flush()
            assert not refusals
            assert all(future.done() for future in sent)

    play(story)


def test_acks_0_needs_no_response() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        async with producer(cluster, acks=0) as p:
            metadata = await p.send_and_wait("t", b"x")
            assert metadata.offset == -1
            await p.send_and_wait("t", b"y")
        assert not cluster.asked(ApiKey.INIT_PRODUCER_ID)
        while len(cluster.records("t")) < 2:
            await asyncio.sleep(0.01)

    play(story)


def test_it_follows_the_leader() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        async with producer(cluster, linger_ms=0) as p:
            await p.send_and_wait("t", b"1")
            cluster.move("t", 0, leader=2)
            await p.send_and_wait("t", b"2")
        assert values(cluster) == [b"1", b"2"]
        assert {node for node, key, _, _ in cluster.requests if key is ApiKey.PRODUCE} == {1, 2}

    play(story, brokers=2)


def test_it_leaves_a_leader_that_is_deposed_and_does_not_know() -> None:
    """Whom nobody follows any more takes records in, and tells again and again that replicas lack."""

    def unaware(node: int, key: ApiKey, request: Any) -> Any:
        return refusal(request, ErrorCode.REQUEST_TIMED_OUT) if (node, key) == (1, ApiKey.PRODUCE) else None

    async def story(cluster: ScriptedCluster) -> None:
        async with producer(cluster, linger_ms=0) as p:
            await p.send_and_wait("t", b"1")
            cluster.move("t", 0, leader=2)
            cluster.before = unaware
            await p.send_and_wait("t", b"2")
        assert values(cluster) == [b"1", b"2"]

    play(story, brokers=2)


@pytest.mark.parametrize("seed", range(25))
def test_idempotence_keeps_order_and_counts_each_record_once_whatever_breaks(seed: int) -> None:
    """Responses are lost, connections drop before and after the append, leaders refuse and move; five batches fly."""

    async def story(cluster: ScriptedCluster) -> None:
        chance = random.Random(seed)

        def before(node: int, key: ApiKey, request: Any) -> Any:
            if key is not ApiKey.PRODUCE or chance.random() > 0.3:
                return None
            kind = chance.randrange(4)
            if kind == 3:
                cluster.move("t", chance.randrange(3), leader=chance.choice([1, 2]))
            return [DROP, SILENCE, refusal(request, ErrorCode.NOT_ENOUGH_REPLICAS), None][kind]

        def after(node: int, key: ApiKey, request: Any, response: Any) -> Any:
            return DROP if key is ApiKey.PRODUCE and chance.random() < 0.15 else response

        cluster.before, cluster.after = before, after
        sent: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        async with producer(
            cluster, batch_size=200, linger_ms=2, request_timeout_ms=500, delivery_timeout_ms=10**7
        ) as p:
            futures = []
            for i in range(300):
                value = b"%d" % i
                sent[i % 3].append(value)
                futures.append(await p.send("t", value, partition=i % 3))
                await asyncio.sleep(chance.choice([0, 0, 0.005]))
            results = await asyncio.gather(*futures)
        for partition, expected in sent.items():
            assert values(cluster, "t", partition) == expected
        for i, metadata in enumerate(results):
            assert cluster.records("t", metadata.partition)[metadata.offset].value == b"%d" % i

    play(story, brokers=2, topics={"t": 3}, seed=seed)


@pytest.mark.parametrize("seed", range(10))
def test_a_refused_batch_fails_alone_and_those_behind_it_keep_their_order(seed: int) -> None:
    async def story(cluster: ScriptedCluster) -> None:
        chance = random.Random(seed)

        def before(node: int, key: ApiKey, request: Any) -> Any:
            if key is not ApiKey.PRODUCE:
                return None
            data = bytes(request.topic_data[0].partition_data[0].records)
            if any(record.value == b"bad" for batch in iter_batches(data) for record in batch.records()):
                return refusal(request, ErrorCode.INVALID_RECORD)
            return DROP if chance.random() < 0.2 else None

        cluster.before = before
        good: list[bytes] = []
        async with producer(cluster, batch_size=150, linger_ms=1) as p:
            futures = []
            for i in range(150):
                value = b"bad" if i % 37 == 20 else b"%d" % i
                futures.append(await p.send("t", value))
                await asyncio.sleep(chance.choice([0, 0.004]))
            results = await asyncio.gather(*futures, return_exceptions=True)
        for i, result in enumerate(results):
            if isinstance(result, KafkaError):
                assert result.code is ErrorCode.INVALID_RECORD
            else:
                good.append(b"%d" % i)
        assert len(good) > 100
        assert values(cluster) == good

    play(story, seed=seed)


def test_only_the_records_to_blame_carry_the_brokers_message() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        errors = [BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key")]

        def before(node: int, key: ApiKey, request: Any) -> Any:
            return refusal(request, ErrorCode.INVALID_RECORD, record_errors=errors) if key is ApiKey.PRODUCE else None

        cluster.before = before
        async with producer(cluster) as p:
            futures = [await p.send("t", b"%d" % i) for i in range(3)]
            results = await asyncio.gather(*futures, return_exceptions=True)
        assert ["no key" in str(error) for error in results] == [False, True, False]

    play(story)


def test_a_batch_that_is_too_large_is_split_and_a_record_that_is_fails() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        cluster.max_message_bytes = 1000
        async with producer(cluster, batch_size=100_000, linger_ms=20) as p:
            futures = [await p.send("t", b"%03d" % i + b"x" * 97) for i in range(100)]
            too_large = await p.send("t", b"x" * 2000)
            behind = await p.send("t", b"behind")
            results = await asyncio.gather(*futures, behind)
            with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
                await too_large
        assert [metadata.offset for metadata in results] == list(range(101))
        assert [value and value[:3] for value in values(cluster)] == [*(b"%03d" % i for i in range(100)), b"beh"]

    play(story)


def test_many_at_once_are_what_one_by_one_would_be() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        keys = [None if i % 5 == 0 else b"k%d" % (i % 17) for i in range(500)]
        sent = [None if i % 7 == 0 else b"%d" % i for i in range(500)]
        async with producer(cluster, batch_size=700, linger_ms=20) as p:
            futures = await p.send_many("many", sent, keys=keys, headers=[("h", b"1")], timestamp_ms=5)
            firsts = await asyncio.gather(*futures)
        records = [(part, record) for part in range(3) for record in cluster.records("many", part)]
        assert sorted((r.key or b"", r.value or b"") for _, r in records) == sorted(
            (key or b"", value or b"") for key, value in zip(keys, sent, strict=True)
        )
        assert {(r.timestamp, tuple(r.headers)) for _, r in records} == {(5, (("h", b"1"),))}
        for part, record in records:
            assert record.key is None or part == partition_of_key(record.key, 3)
        in_order = [value for key, value in zip(keys, sent, strict=True) if key == b"k1"]
        assert [record.value for _, record in records if record.key == b"k1"] == in_order
        assert len(set(firsts)) == len(futures) > 10

    play(story, topics={"many": 3})


def test_many_of_one_partition_keep_their_order_and_wait_for_memory() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        sent = [b"%05d" % i for i in range(5000)]
        async with producer(cluster, batch_size=1000, buffer_memory=8000, max_block_ms=1000) as p:
            await asyncio.gather(*await p.send_many("t", sent, partition=0))
            with pytest.raises(KafkaError, match="max_request_size"):
                await p.send_many("t", [b"x", bytes(2**20)])
            with pytest.raises(KafkaError, match="partitions"):
                await p.send_many("t", [b"x"], partition=77)
            with pytest.raises(ValueError, match="2 keys for 1 values"):
                await p.send_many("t", [b"x"], keys=[b"", b""])
            assert await p.send_many("t", []) == []
        assert values(cluster) == sent

    play(story)


def test_many_in_a_batch_that_is_split_are_delivered_when_all_are() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        cluster.max_message_bytes = 1000
        async with producer(cluster, batch_size=100_000) as p:
            (future,) = await p.send_many("t", [b"%03d" % i + b"x" * 97 for i in range(100)])
            assert (await future).offset == 0
            assert [value and value[:3] for value in values(cluster)] == [b"%03d" % i for i in range(100)]
            (refused,) = await p.send_many("t", [b"x" * 10, b"x" * 2000, b"x" * 10])
            with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
                await refused

    play(story)


def test_many_of_which_one_is_refused() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        errors = [BatchIndexAndErrorMessage(batch_index=2, batch_index_error_message="no key")]

        def before(node: int, key: ApiKey, request: Any) -> Any:
            return refusal(request, ErrorCode.INVALID_RECORD, record_errors=errors) if key is ApiKey.PRODUCE else None

        cluster.before = before
        async with producer(cluster) as p:
            (future,) = await p.send_many("t", [b"1", b"2", b"3"])
            with pytest.raises(KafkaError, match="no key"):
                await future

    play(story)


def test_a_record_that_no_request_could_hold_is_refused_at_once() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        async with producer(cluster, max_request_size=1000) as p:
            with pytest.raises(KafkaError, match="max_request_size"):
                await p.send("t", b"x" * 1000)
        assert not cluster.asked(ApiKey.PRODUCE)

    play(story)


def test_delivery_times_out_and_the_next_records_still_go() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        cluster.before = lambda node, key, request: SILENCE if key is ApiKey.PRODUCE else None
        async with producer(cluster, request_timeout_ms=1000, delivery_timeout_ms=5000) as p:
            await p.partitions_for("t")
            started = cluster.loop.time()
            with pytest.raises(DeliveryTimeoutError):
                await p.send_and_wait("t", b"lost")
            assert 5 <= cluster.loop.time() - started < 8
            cluster.before = None
            assert (await p.send_and_wait("t", b"next")).offset == 0
            assert (await p.send_and_wait("t", b"more")).offset == 1
        assert values(cluster) == [b"next", b"more"]

    play(story)


@pytest.mark.parametrize(
    ("asked", "code", "why"),
    [
        (
            ApiKey.INIT_PRODUCER_ID,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ": COORDINATOR_LOAD_IN_PROGRESS: no producer id: the request failed",
        ),
        (ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS, ": NOT_ENOUGH_REPLICAS: partition t-0"),
    ],
)
def test_what_times_out_says_why(asked: ApiKey, code: ErrorCode, why: str) -> None:
    def refuse(node: int, key: ApiKey, request: Any) -> Any:
        if key is not asked:
            return None
        return refusal(request, code) if key is ApiKey.PRODUCE else InitProducerIdResponse(error_code=code)

    async def story(cluster: ScriptedCluster) -> None:
        cluster.before = refuse
        async with producer(cluster, request_timeout_ms=1000, delivery_timeout_ms=5000) as p:
            with pytest.raises(DeliveryTimeoutError, match=f"not acknowledged in .* ms{why}$"):
                await p.send_and_wait("t", b"lost")

    play(story)


def test_memory_is_bounded_and_senders_wait_for_it() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        cluster.before = lambda node, key, request: SILENCE if key is ApiKey.PRODUCE else None
        settings = {"buffer_memory": 10_000, "max_block_ms": 2000, "request_timeout_ms": 10_000, "batch_size": 1000}
        async with producer(cluster, **settings) as p:
            accepted = []
            with pytest.raises(BufferFullError):
                while True:
                    accepted.append(await p.send("t", b"x" * 500))
            assert 15 <= len(accepted) <= 20
            cluster.before = None
            cluster.disconnect_all()
            accepted.append(await p.send("t", b"x" * 500))
            await asyncio.gather(*accepted)
        assert len(values(cluster)) == len(accepted)

    play(story)


def test_memory_goes_on_to_the_next_when_who_was_given_it_is_gone() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        async with producer(cluster, buffer_memory=1000, max_block_ms=5000) as p:
            first = await p.send("t", bytes(900))
            gone, patient = [asyncio.create_task(p.send("t", bytes(900))) for _ in range(2)]
            first.add_done_callback(lambda _: gone.cancel())
            await (await patient)
            assert gone.cancelled()

    play(story)


def test_an_old_broker_gets_messages_of_format_1_and_no_sequences() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        cluster.versions = {
            ApiKey.PRODUCE: (0, 2),
            ApiKey.FETCH: (0, 2),
            ApiKey.LIST_OFFSETS: (0, 0),
            ApiKey.METADATA: (0, 1),
            ApiKey.API_VERSIONS: (0, 0),
        }
        async with producer(cluster, compression="gzip") as p:
            futures = [await p.send("t", b"%d" % i, key=b"k") for i in range(3)]
            await asyncio.gather(*futures)
        (_, _, data) = cluster.partitions["t", 0].batches[0]
        assert [batch.magic for batch in iter_batches(data)] == [1]
        assert values(cluster) == [b"0", b"1", b"2"]
        with pytest.raises(UnsupportedVersionError, match="idempotent"):
            await producer(cluster, enable_idempotence=True).start()

    play(story)


def test_an_unreachable_cluster_is_named() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        with pytest.raises(BrokerUnreachableError, match=r"cannot reach broker at nowhere:1234"):
            await Producer("nowhere:1234", rng=random.Random(1)).start()

    play(story)


def test_a_partition_that_was_added_is_awaited() -> None:
    """What is known of the topic may be minutes old, and not every broker has heard of the new partition."""

    async def story(cluster: ScriptedCluster) -> None:
        async with producer(cluster) as p:
            await p.send_and_wait("t", b"old", partition=0)
            sending = cluster.loop.create_task(p.send_and_wait("t", b"new", partition=1))
            await asyncio.sleep(1)
            assert not sending.done()
            cluster.partitions["t", 1] = StoredPartition(leader=1)
            assert (await sending).partition == 1

    play(story)


def test_a_missing_topic_is_awaited_for_max_block_ms() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        async with producer(cluster, max_block_ms=3000) as p:
            started = cluster.loop.time()
            with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
                await p.send("missing", b"x")
            assert 1.5 < cluster.loop.time() - started <= 3

    play(story)


def test_a_topic_that_is_not_sent_to_any_more_is_not_asked_for_for_ever() -> None:
    """Where topics are created because they are asked for, one that was deleted would come back."""

    def asked_last(cluster: ScriptedCluster) -> list[str]:
        return [topic.name for topic in cluster.asked(ApiKey.METADATA)[-1].topics]

    async def story(cluster: ScriptedCluster) -> None:
        async with producer(cluster, metadata_max_age_ms=60_000, metadata_max_idle_ms=300_000) as p:
            await p.send_and_wait("t", b"first")
            for minute in range(1, 8):
                await p.send_and_wait("u", b"busy")
                if minute == 4:
                    assert asked_last(cluster) == ["t", "u"]
                await asyncio.sleep(60)
            assert asked_last(cluster) == ["u"]
            await p.send_and_wait("t", b"second")
            assert asked_last(cluster) == ["t", "u"]
            assert values(cluster) == [b"first", b"second"]

    play(story, topics={"t": 1, "u": 1})


def test_a_topic_that_has_records_to_be_delivered_is_asked_for() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        async with producer(
            cluster, metadata_max_age_ms=1000, metadata_max_idle_ms=2000, delivery_timeout_ms=60_000
        ) as p:
            await p.send_and_wait("t", b"first")
            cluster.before = lambda node, key, request: (
                refusal(request, ErrorCode.NOT_LEADER_OR_FOLLOWER) if key is ApiKey.PRODUCE else None
            )
            sending = cluster.loop.create_task(p.send_and_wait("t", b"second"))
            await asyncio.sleep(30)
            assert [topic.name for topic in cluster.asked(ApiKey.METADATA)[-1].topics] == ["t"]
            cluster.before = None
            await sending
            assert values(cluster) == [b"first", b"second"]

    play(story)


def test_close_delivers_what_was_sent() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        p = await producer(cluster, linger_ms=10_000).start()
        future = await p.send("t", b"x")
        await p.close()
        assert (await future).offset == 0
        with pytest.raises(RuntimeError, match="not running"):
            await p.send("t", b"y")

    play(story)


def test_close_with_a_timeout_fails_the_rest() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        cluster.before = lambda node, key, request: SILENCE if key is ApiKey.PRODUCE else None
        p = await producer(cluster).start()
        future = await p.send("t", b"x")
        await p.close(timeout_ms=500)
        with pytest.raises(KafkaError, match="closed"):
            await future

    play(story)


def test_an_error_code_from_the_future_is_an_error() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        cluster.before = lambda node, key, request: refusal(request, 9999) if key is ApiKey.PRODUCE else None
        async with producer(cluster) as p:
            with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR"):
                await p.send_and_wait("t", b"x")

    play(story)


def test_a_mistake_of_ours_ends_the_producer_and_leaves_nobody_waiting() -> None:
    class NoChance(random.Random):
        def uniform(self, a: float, b: float) -> float:
            raise ZeroDivisionError("planted")

    async def story(cluster: ScriptedCluster) -> None:
        cluster.before = lambda node, key, request: (
            refusal(request, ErrorCode.NOT_ENOUGH_REPLICAS) if key is ApiKey.PRODUCE else None
        )
        async with Producer(cluster.bootstrap, rng=NoChance()) as p:
            with pytest.raises(KafkaError, match="planted"):
                await p.send_and_wait("t", b"x")
            with pytest.raises(RuntimeError, match="not running"):
                await p.send("t", b"y")

    play(story)
