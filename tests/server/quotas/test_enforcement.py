"""A whole broker under virtual time keeps its clients to their quotas: how long they wait, what they get meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.server.data_plane import (
    PAGE_CACHE,
    DataPlane,
    at,
    batch,
    fetch,
    fetched,
    only_fetched,
    play,
    produce,
    values_in,
)
from tests.server.network.open_connections import open_connections

from barnabas.clients.connection import BrokerConnection
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

ROUND_TRIP = 0.5
"""More than the simulated network takes for a request and its answer, in seconds."""


async def set_quota(plane: DataPlane, key: str, value: float | None, **entity: str | None) -> None:
    """Over a connection of its own, whose client id has no quota unless all have."""
    parts = [EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()]
    op = OpData(key=key, value=value or 0.0, remove=value is None)
    connection = await plane.connect("admin")
    answer = await connection.send(AlterClientQuotasRequest(entries=[EntryData(entity=parts, ops=[op])]))
    assert [entry.error_code for entry in answer.entries] == [ErrorCode.NONE]
    connection.close()


async def timed(plane: DataPlane, connection: BrokerConnection, request: Any, version: int) -> tuple[Any, float]:
    """The answer, and the virtual seconds until it came."""
    began = plane.loop.time()
    response = await connection.send(request, version)
    return response, plane.loop.time() - began


def test_a_producer_is_answered_at_once_told_to_wait_and_not_heard_until_then() -> None:
    async def talk(plane: DataPlane) -> None:
        await set_quota(plane, "producer_byte_rate", 1000.0, client_id="greedy")
        greedy, other = await plane.connect("greedy"), await plane.connect("modest")
        request = produce(batch(b"x" * 20_000))
        response, seconds = await timed(plane, greedy, request, 9)
        # 20 kB over 10 s of which 1 kB/s is allowed: as long again.
        assert 10_000 < response.throttle_time_ms < 12_000
        assert seconds < ROUND_TRIP
        wait = response.throttle_time_ms / 1000
        response, seconds = await timed(plane, other, request, 9)
        assert response.throttle_time_ms == 0 and seconds < ROUND_TRIP
        response, seconds = await timed(plane, greedy, produce(batch(b"x")), 9)
        assert wait - ROUND_TRIP < seconds < wait + ROUND_TRIP
        assert plane.partition().log.log_end_offset == 3
        for connection in (greedy, other):
            connection.close()

    play(talk, settings=PAGE_CACHE)


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_over_time_a_producer_has_the_rate_of_its_quota(acks: int) -> None:
    async def talk(plane: DataPlane) -> None:
        await set_quota(plane, "producer_byte_rate", 10_000.0, user=None)
        connection = await plane.connect("greedy")
        began = plane.loop.time()
        sent, seconds = 0, 60.0
        while plane.loop.time() < began + seconds:
            await connection.send(produce(batch(b"x" * 5000), acks=acks), 9, expects_response=acks != 0)
            if acks == 0:
                # This is heard when the wait is over.
                await connection.send(MetadataRequest(topics=[]), 9)
            sent += 5000
        # The first ten seconds' worth may come at once.
        assert 0.9 < sent / (10_000 * seconds) < 1.3
        connection.close()

    play(talk, settings=PAGE_CACHE)


@pytest.mark.parametrize("broken", ["a partition", "the handler", "every partition refused"])
def test_produce_with_acks_0_that_fails_is_charged_before_its_connection_closes(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def talk(plane: DataPlane) -> None:
        await set_quota(plane, "producer_byte_rate", 1000.0, client_id="raw")
        request = produce(batch(b"x" * 20_000), acks=0)
        if broken == "a partition":
            request.topic_data[0].partition_data += produce(batch(b"x"), index=77).topic_data[0].partition_data
        elif broken == "the handler":

            def fail(*_: object, **__: Any) -> None:
                raise RuntimeError("on purpose")

            monkeypatch.setattr(plane.state.replica_manager, "append_records", fail)
        else:
            request.topic_data[0].name = "nowhere"
        client = await plane.raw()
        client.send(ApiKey.PRODUCE, 9, request)
        began = plane.loop.time()
        assert await client.is_closed()
        wait = plane.loop.time() - began
        # 20 kB over 10 s of which 1 kB/s is allowed: as long again.
        assert 10 - ROUND_TRIP < wait < 12 + ROUND_TRIP
        client.writer.close()
        # Closed or not, another connection of the same client owes it, too.
        monkeypatch.undo()
        client = await plane.raw()
        client.send(ApiKey.PRODUCE, 9, produce(batch(b"x" * 20_000), acks=1))
        _, response = await client.receive(ApiKey.PRODUCE, 9)
        assert response.throttle_time_ms > 10_000
        client.writer.close()

    play(talk, settings=PAGE_CACHE)


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_a_produce_request_is_charged_when_its_client_does_not_wait_for_the_response(acks: int) -> None:
    async def talk(plane: DataPlane) -> None:
        await set_quota(plane, "producer_byte_rate", 1000.0, client_id="raw")
        client = await plane.raw()
        client.send(ApiKey.PRODUCE, 9, produce(batch(b"x" * 20_000), acks=acks))
        client.writer.close()
        await plane.until(lambda: plane.partition().log.log_end_offset == 1)
        await asyncio.sleep(1)
        other = await plane.connect("raw")
        assert (await other.send(produce(batch(b"x")), 9)).throttle_time_ms > 8000
        other.close()

    play(talk)


def test_the_time_of_a_request_is_charged_when_its_client_is_gone_before_the_response() -> None:
    async def talk(plane: DataPlane) -> None:
        ticks = iter(range(10**6))
        await set_quota(plane, "request_percentage", 1.0, client_id="raw")
        plane.state.quotas.stopwatch = lambda: next(ticks) * 0.2
        client = await plane.raw()
        client.send(ApiKey.FETCH, 11, fetch(at(0), min_bytes=1, max_wait_ms=60_000))
        await asyncio.sleep(1)
        client.writer.close()
        await asyncio.sleep(1)
        quota = plane.state.quotas.request
        assert quota.record("ANONYMOUS", "raw", 0.0, plane.loop.time()) > 0

    play(talk, settings=PAGE_CACHE)


def test_a_fetch_over_the_quota_is_empty_and_its_session_goes_on() -> None:
    async def talk(plane: DataPlane) -> None:
        await set_quota(plane, "consumer_byte_rate", 1000.0, client_id="greedy")
        for value in (b"one", b"two", b"three"):
            await plane.append(batch(value + b"x" * 5000))
        greedy = await plane.connect("greedy")
        first = await greedy.send(fetch(at(0), session_epoch=0, session_id=0, max_bytes=1 << 20), 11)
        assert first.throttle_time_ms == 0 and first.session_id
        assert len(values_in(only_fetched(first))) == 1, "no fetch takes more than all windows have room for"
        again = fetch(at(1), session_epoch=1, session_id=first.session_id)
        second, seconds = await timed(plane, greedy, again, 11)
        assert seconds < ROUND_TRIP
        assert second.throttle_time_ms > 0 and second.responses == []
        assert (second.session_id, second.error_code) == (first.session_id, ErrorCode.NONE)
        third, seconds = await timed(plane, greedy, fetch(at(1), session_epoch=2, session_id=first.session_id), 11)
        assert abs(seconds - second.throttle_time_ms / 1000) < ROUND_TRIP
        assert third.error_code == ErrorCode.NONE
        greedy.close()

    play(talk, settings=PAGE_CACHE)


def test_a_full_fetch_over_the_quota_begins_no_session() -> None:
    async def talk(plane: DataPlane) -> None:
        await set_quota(plane, "consumer_byte_rate", 1000.0, client_id=None)
        await plane.append(batch(b"x" * 9000))
        reader = await plane.connect("reader")
        assert values_in(only_fetched(await reader.send(fetch(at(0), session_epoch=-1), 11)))
        opening = fetch(at(0), session_epoch=0)
        refused = await reader.send(opening, 11)
        assert refused.throttle_time_ms > 0
        assert (refused.session_id, refused.responses, len(plane.state.fetch_sessions)) == (0, [], 0)
        reader.close()

    play(talk, settings=PAGE_CACHE)


def test_a_parked_fetch_is_kept_to_the_quota_too_and_progress_is_made() -> None:
    async def talk(plane: DataPlane) -> None:
        await set_quota(plane, "consumer_byte_rate", 2000.0, client_id="reader")
        reader = await plane.connect("reader")
        offset, throttled = 0, 0
        began = plane.loop.time()
        for _ in range(40):
            await plane.append(batch(b"x" * 3000))
        while offset < 40:
            assert plane.loop.time() < began + 600
            response = await reader.send(fetch(at(offset, max_bytes=4000), max_wait_ms=200), 4)
            if response.throttle_time_ms:
                throttled += 1
                assert not fetched(response)
                continue
            offset += len(values_in(only_fetched(response)))
        assert throttled
        rate = 40 * 3000 / (plane.loop.time() - began)
        # As in Kafka it is rather less than allowed: what was read and not sent is waited for in full, and again.
        assert 1000 < rate < 2600
        reader.close()

    play(talk, settings=PAGE_CACHE)


def test_a_quota_is_lifted_at_once() -> None:
    async def talk(plane: DataPlane) -> None:
        await set_quota(plane, "producer_byte_rate", 100.0, user="ANONYMOUS", client_id="greedy")
        greedy = await plane.connect("greedy")
        assert (await greedy.send(produce(batch(b"x" * 5000)), 9)).throttle_time_ms > 1000
        greedy.close()
        await set_quota(plane, "producer_byte_rate", None, user="ANONYMOUS", client_id="greedy")
        assert not plane.state.quotas.enforced
        greedy = await plane.connect("greedy")
        assert (await greedy.send(produce(batch(b"x" * 5000)), 9)).throttle_time_ms == 0
        greedy.close()

    play(talk, settings=PAGE_CACHE)


def test_time_is_counted_and_no_wait_for_it_is_longer_than_a_window() -> None:
    async def talk(plane: DataPlane) -> None:
        ticks = iter(range(10**6))
        plane.state.quotas.stopwatch = lambda: next(ticks) * 0.2
        await set_quota(plane, "request_percentage", 1.0, client_id="busy")
        busy = await plane.connect("busy")
        for request, version in (
            (MetadataRequest(topics=[]), 9),
            (fetch(at(0)), 11),
            (produce(batch(b"x")), 9),
            (CreateTopicsRequest(topics=[]), 7),
        ):
            response, _ = await timed(plane, busy, request, version)
            assert response.throttle_time_ms == 1000, type(request).__name__
        other = await plane.connect("idle")
        assert (await other.send(MetadataRequest(topics=[]), 9)).throttle_time_ms == 0
        busy.close()
        other.close()

    play(talk, settings=PAGE_CACHE)


def test_changes_of_topics_are_refused_or_slowed_down() -> None:
    async def talk(plane: DataPlane) -> None:
        await set_quota(plane, "controller_mutation_rate", 1.0, client_id="maker")
        maker = await plane.connect("maker")

        async def create(name: str, partitions: int, version: int = 7, *, only_check: bool = False) -> Any:
            topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
            request = CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=only_check)
            return await maker.send(request, version)

        answer = await create("big", 20)
        assert (answer.topics[0].error_code, answer.throttle_time_ms) == (ErrorCode.NONE, 0), "overdrawn once"
        answer = await create("next", 1)
        assert answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert answer.topics[0].error_message == "The throttling quota has been exceeded."
        assert 8000 < answer.throttle_time_ms <= 9000
        assert "next" not in plane.state.metadata
        wait = answer.throttle_time_ms / 1000
        began = plane.loop.time()
        assert (await create("next", 1)).topics[0].error_code == ErrorCode.NONE
        assert plane.loop.time() - began > wait - ROUND_TRIP
        # Checking costs nothing, and older versions know no such error.
        assert (await create("unmade", 100, only_check=True)).topics[0].error_code == ErrorCode.NONE
        answer = await create("old", 5, version=5)
        assert answer.topics[0].error_code == ErrorCode.NONE and answer.throttle_time_ms > 4000
        more = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="old", count=50, assignments=None)], timeout_ms=1000
        )
        answer = await maker.send(more, 2)
        assert answer.results[0].error_code == ErrorCode.NONE and answer.throttle_time_ms > 40_000
        other = await plane.connect("maker")
        answer = await other.send(
            CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="old", count=51, assignments=None)]), 3
        )
        assert answer.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        third = await plane.connect("maker")
        doomed = DeleteTopicsRequest(topics=[DeleteTopicState(name="big")], timeout_ms=1000)
        answer = await third.send(doomed, 6)
        assert answer.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED and "big" in plane.state.metadata
        fourth = await plane.connect("maker")
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="auto")], allow_auto_topic_creation=True)
        answer = await fourth.send(asked, 9)
        assert answer.throttle_time_ms > 40_000 and "auto" in plane.state.metadata
        for connection in (maker, other, third, fourth):
            connection.close()

    play(talk, settings=PAGE_CACHE)


def test_connections_over_the_rate_are_closed_after_a_while() -> None:
    async def talk(plane: DataPlane) -> None:
        before = open_connections(plane.server.sockets)
        host = next(iter(plane.server.sockets._connections)).session.client_host if before else None
        await set_quota(plane, "connection_creation_rate", 1.0, ip=host)
        clients = [await plane.raw() for _ in range(12)]
        # Those who are put off count among the connections, too.
        await plane.until(lambda: open_connections(plane.server.sockets) == before + len(clients), seconds=0.1)
        for client in clients:
            client.send(ApiKey.METADATA, 9, MetadataRequest(topics=[]))
        began = plane.loop.time()
        outcomes = await asyncio.gather(*(client.reader.read(1) for client in clients))
        late = outcomes.count(b"")
        assert 1 <= late <= 3 and plane.loop.time() - began < 1.5
        assert open_connections(plane.server.sockets) == before + len(clients) - late
        await set_quota_when_possible(plane)
        for client in clients:
            client.writer.close()

    async def set_quota_when_possible(plane: DataPlane) -> None:
        """The default of all addresses counts for this one too: some time has to pass."""
        await asyncio.sleep(30)
        await set_quota(plane, "connection_creation_rate", None, ip=None)
        assert plane.state.quotas.connections.limits == {}

    play(talk, settings=PAGE_CACHE)


def test_quotas_outlive_a_restart() -> None:
    async def talk(plane: DataPlane) -> None:
        await set_quota(plane, "producer_byte_rate", 100.0, user=None, client_id="greedy")
        await plane.world.broker.stop()
        await plane.world.broker.start()
        greedy = await plane.connect("greedy")
        assert (await greedy.send(produce(batch(b"x" * 5000)), 9)).throttle_time_ms > 1000
        greedy.close()

    play(talk, settings=PAGE_CACHE)


def test_without_a_quota_nothing_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    def quota_usage(*_: object) -> None:
        raise AssertionError("nobody has a quota")

    monkeypatch.setattr("barnabas.server.apis.interceptors.RequestQuotaUsage", quota_usage)

    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect("any")
        await connection.send(produce(batch(b"x")), 9)
        assert values_in(only_fetched(await connection.send(fetch(at(0)), 11)))
        connection.close()

    play(talk, settings=PAGE_CACHE)
