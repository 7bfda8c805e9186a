"""Incremental fetch sessions: epochs, what is left out, what is sent again, forgetting, eviction, names and ids."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from tests.server.data_plane import PAGE_CACHE, DataPlane, at, batch, fetch, fetched, play, produce, values_in

from barnabas.clients.connection import BrokerConnection
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse, FetchTopic, ForgottenTopic, ReplicaState
from barnabas.server.replication.fetch_session import EVICTION_MS, MAX_EPOCH, FetchSessionCache, requested_items

LAST = 18
EVICTION_S = EVICTION_MS / 1000


class Reader:
    """A client that keeps to its session as Kafka's consumers do."""

    def __init__(self, plane: DataPlane, connection: BrokerConnection, version: int) -> None:
        self.plane = plane
        self.connection = connection
        self.version = version
        self.session_id = 0
        self.epoch = 0

    async def ask(self, *partitions: Any, forget: tuple[int, ...] = (), **options: Any) -> FetchResponse:
        request = fetch(
            *partitions,
            topic_id=self.plane.topic_id(),
            session_id=self.session_id,
            session_epoch=self.epoch,
            forgotten_topics_data=[
                ForgottenTopic(topic="t", topic_id=self.plane.topic_id(), partitions=list(forget)),
            ]
            if forget
            else [],
            **options,
        )
        response: FetchResponse = await self.connection.send(request, self.version)
        if response.error_code == ErrorCode.NONE:
            self.session_id = response.session_id
            self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1
        return response


async def reader(plane: DataPlane, version: int = 12) -> Reader:
    return Reader(plane, await plane.connect(), version)


@pytest.mark.parametrize("version", range(7, LAST + 1))
def test_only_what_changed_is_answered(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        session = await reader(plane, version)
        response = await session.ask(at(0), at(0, 1))
        assert response.session_id > 0
        assert set(fetched(response)) == {0, 1}
        assert fetched(await session.ask()) == {}
        await plane.append(batch(b"a"), index=1)
        response = await session.ask()
        assert response.session_id == session.session_id
        assert {index: values_in(data) for index, data in fetched(response).items()} == {1: [b"a"]}
        # It is sent until the reader asks for what is behind it.
        assert set(fetched(await session.ask())) == {1}
        assert fetched(await session.ask(at(1, 1))) == {}
        plane.partition("t", 1).delete_records(1)
        (data,) = fetched(await session.ask()).values()
        assert (data.partition_index, data.log_start_offset, values_in(data)) == (1, 1, [])
        assert fetched(await session.ask()) == {}

    play(talk, settings=PAGE_CACHE)


def test_who_asks_in_another_term_of_the_leader_is_told_again() -> None:
    """A follower takes nothing of an answer that comes after the next order: not the high watermark in it either."""

    async def talk(plane: DataPlane) -> None:
        session = await reader(plane)
        await session.ask(at(0))
        await plane.append(batch(b"a"))
        await session.ask()
        epoch = plane.partition().leader_epoch
        told = fetched(await session.ask(at(1, current_leader_epoch=epoch)))
        assert told[0].high_watermark == 1
        assert fetched(await session.ask(at(1, current_leader_epoch=epoch))) == {}

    play(talk, settings=PAGE_CACHE)


def test_a_session_that_waits_is_woken_with_what_changed_alone() -> None:
    async def talk(plane: DataPlane) -> None:
        session = await reader(plane)
        await session.ask(at(0), at(0, 1))
        waiting = asyncio.ensure_future(session.ask(max_wait_ms=60_000))
        await plane.until(lambda: plane.state.replica_manager.delayed_operations["Fetch"] == 1)
        await plane.append(batch(b"v"))
        assert {index: values_in(data) for index, data in fetched(await waiting).items()} == {0: [b"v"]}

    play(talk, settings=PAGE_CACHE)


def test_wrong_epochs_and_unknown_sessions() -> None:
    async def talk(plane: DataPlane) -> None:
        session = await reader(plane)
        await session.ask(at(0))
        assert session.epoch == 1
        for epoch in (2, 5, MAX_EPOCH, -2):
            session.epoch = epoch
            response = await session.ask()
            assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
            assert (response.responses, response.session_id) == ([], 0)
        session.epoch = 1
        assert (await session.ask()).error_code == ErrorCode.NONE
        session.session_id += 1
        response = await session.ask()
        assert (response.error_code, response.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
        # The way out: a full fetch, which also closes the session that it names.
        session.session_id -= 1
        session.epoch = 0
        before = session.session_id
        assert (await session.ask(at(0))).session_id != before
        assert len(plane.state.fetch_sessions) == 1

    play(talk, settings=PAGE_CACHE)


def test_the_epoch_goes_round() -> None:
    async def talk(plane: DataPlane) -> None:
        session = await reader(plane)
        await session.ask(at(0))
        (remembered,) = plane.state.fetch_sessions._sessions.values()
        remembered.epoch = session.epoch = MAX_EPOCH
        for expected in (1, 2, 3):
            assert (await session.ask()).error_code == ErrorCode.NONE
            assert session.epoch == remembered.epoch == expected

    play(talk, settings=PAGE_CACHE)


def test_a_final_fetch_closes_the_session() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.append(batch(b"v"))
        session = await reader(plane)
        await session.ask(at(0))
        session.epoch = -1
        response = await session.ask(at(0))
        assert (response.session_id, values_in(fetched(response)[0])) == (0, [b"v"])
        assert len(plane.state.fetch_sessions) == 0

    play(talk, settings=PAGE_CACHE)


@pytest.mark.parametrize("version", [7, 12, 13])
def test_partitions_are_added_moved_and_forgotten(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        for index in (0, 1):
            for value in (b"a", b"b"):
                await plane.append(batch(value), index=index)
        session = await reader(plane, version)
        await session.ask(at(0))
        answers = fetched(await session.ask(at(0, 1), at(1)))
        assert {index: values_in(data) for index, data in answers.items()} == {0: [b"b"], 1: [b"a", b"b"]}
        answers = fetched(await session.ask(forget=(0,)))
        assert {index: values_in(data) for index, data in answers.items()} == {1: [b"a", b"b"]}
        # With nothing left there is no session.
        response = await session.ask(forget=(1, 7))
        assert (response.error_code, response.session_id, response.responses) == (ErrorCode.NONE, 0, [])
        assert len(plane.state.fetch_sessions) == 0

    play(talk, settings=PAGE_CACHE)


def test_an_error_is_sent_every_time_and_so_is_its_end() -> None:
    async def talk(plane: DataPlane) -> None:
        session = await reader(plane)
        await session.ask(at(0), at(3, 1))
        for _ in range(2):
            answers = fetched(await session.ask())
            assert {index: data.error_code for index, data in answers.items()} == {1: ErrorCode.OFFSET_OUT_OF_RANGE}
        answers = fetched(await session.ask(at(0, 1)))
        assert {index: data.error_code for index, data in answers.items()} == {1: ErrorCode.NONE}
        assert fetched(await session.ask()) == {}

    play(talk, settings=PAGE_CACHE)


def test_who_was_told_where_logs_part_is_told_the_high_watermark_again() -> None:
    """A follower takes it over when its own log is cut, which is after that answer."""

    async def talk(plane: DataPlane) -> None:
        session = await reader(plane)
        await plane.append(batch(b"a"))
        epoch = plane.partition().log.leader_epochs.latest_epoch
        (parted,) = fetched(await session.ask(at(2, last_fetched_epoch=epoch))).values()
        assert (parted.diverging_epoch.end_offset, parted.high_watermark) == (1, 1)
        (cut,) = fetched(await session.ask(at(1, last_fetched_epoch=epoch))).values()
        assert (cut.diverging_epoch.end_offset, cut.high_watermark) == (-1, 1)
        assert fetched(await session.ask()) == {}

    play(talk, settings=PAGE_CACHE)


def test_a_partition_that_was_served_goes_to_the_end_of_the_order() -> None:
    async def talk(plane: DataPlane) -> None:
        for index in (0, 1):
            for _ in range(3):
                await plane.append(batch(b"v" * 1000), index=index)
        session = await reader(plane)
        seen = [list(fetched(await session.ask(at(0), at(0, 1), max_bytes=10)))]
        for _ in range(3):
            answers = fetched(await session.ask(max_bytes=10))
            seen.append([index for index, data in answers.items() if values_in(data)])
        assert seen == [[0, 1], [1], [0], [1]]

    play(talk, settings=PAGE_CACHE)


def test_sessions_of_names_and_of_ids_do_not_mix() -> None:
    async def talk(plane: DataPlane) -> None:
        for opened, resumed in ((12, 13), (13, 12), (LAST, 7)):
            session = await reader(plane, opened)
            await session.ask(at(0))
            session.version = resumed
            response = await session.ask()
            assert (response.error_code, response.responses) == (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, [])

    play(talk, settings=PAGE_CACHE)


def test_a_topic_that_is_made_anew_is_another_one_in_a_session_of_ids() -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.append(batch(b"old"))
        session = await reader(plane, 13)
        await session.ask(at(0))
        await plane.delete_topic("t")
        await plane.create_topic("t", 2)
        await plane.append(batch(b"new"))
        (data,) = fetched(await session.ask()).values()
        assert (data.error_code, values_in(data)) == (ErrorCode.UNKNOWN_TOPIC_ID, [])
        answers = await session.ask(at(0))
        by_id = {topic.topic_id: topic.partitions[0] for topic in answers.responses}
        assert values_in(by_id[plane.topic_id()]) == [b"new"]

    play(talk, settings=PAGE_CACHE)


def test_without_a_slot_readers_go_on_without_a_session() -> None:
    async def talk(plane: DataPlane) -> None:
        first, second = await reader(plane), await reader(plane)
        assert (await first.ask(at(0))).session_id > 0
        response = await second.ask(at(0), at(0, 1))
        assert (response.error_code, response.session_id, set(fetched(response))) == (ErrorCode.NONE, 0, {0, 1})
        assert (await first.ask()).error_code == ErrorCode.NONE

    play(talk, settings={**PAGE_CACHE, "max.incremental.fetch.session.cache.slots": "1"})


def test_before_version_7_there_are_no_sessions() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        for version in range(7):
            await connection.send(fetch(at(0), session_epoch=0), version)
        await connection.send(produce(batch(b"v")), 9)
        assert len(plane.state.fetch_sessions) == 0

    play(talk, settings=PAGE_CACHE)


# -- the cache by itself --------------------------------------------------------------------------------------------


def items(count: int) -> dict[Any, Any]:
    return requested_items(
        FetchRequest(topics=[FetchTopic(topic="t", partitions=[at(0, index) for index in range(count)])]),
        uses_topic_ids=False,
    )


def opened(sessions: FetchSessionCache, count: int, now: float, **whose: Any) -> int:
    session = sessions.open(items(count), uses_topic_ids=False, now=now, **whose)
    return session.id if session is not None else 0


def use(sessions: FetchSessionCache, session_id: int, epoch: int, now: float) -> None:
    request = FetchRequest(session_id=session_id, session_epoch=epoch)
    sessions.resume(session_id, epoch, request, uses_topic_ids=False, now=now)


def test_the_session_unused_for_longest_makes_room() -> None:
    sessions = FetchSessionCache(2, random.Random(1))
    first, second = opened(sessions, 1, 0.0), opened(sessions, 1, 1.0)
    use(sessions, first, 1, EVICTION_S)
    assert opened(sessions, 1, EVICTION_S + 1.0) == 0
    third = opened(sessions, 1, EVICTION_S + 1.5)
    assert third > 0
    use(sessions, first, 2, EVICTION_S + 2)
    with pytest.raises(KafkaError) as caught:
        use(sessions, second, 1, EVICTION_S + 2)
    assert caught.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_larger_session_takes_the_place_of_a_smaller_one_that_is_not_young() -> None:
    sessions = FetchSessionCache(2, random.Random(1))
    small, large = opened(sessions, 2, 0.0), opened(sessions, 9, 0.0)
    for epoch, now in ((1, EVICTION_S - 1), (2, EVICTION_S + 1)):
        use(sessions, small, epoch, now)
        use(sessions, large, epoch, now)
    assert opened(sessions, 1, EVICTION_S + 2) == 0
    assert opened(sessions, 2, EVICTION_S + 2) == 0
    newest = opened(sessions, 3, EVICTION_S + 2)
    assert newest > 0
    use(sessions, large, 3, EVICTION_S + 2)
    with pytest.raises(KafkaError):
        use(sessions, small, 3, EVICTION_S + 2)
    # The newest is protected for as long as it is young, however small.
    assert opened(sessions, 5, EVICTION_S + 3) == 0


def test_followers_take_the_places_of_others_and_never_the_other_way_round() -> None:
    sessions = FetchSessionCache(2, random.Random(1))
    first, second = opened(sessions, 9, 0.0), opened(sessions, 8, 0.0)
    followers = [opened(sessions, 1, 1.0, is_follower=True), opened(sessions, 2, 1.0, is_follower=True)]
    for gone in (second, first):
        with pytest.raises(KafkaError):
            use(sessions, gone, 1, 1.0)
    assert opened(sessions, 5, 2.0, is_follower=True) == 0, "both are young"
    for epoch, now in ((1, EVICTION_S - 1), (2, EVICTION_S + 2)):
        for session in followers:
            use(sessions, session, epoch, now)
    assert opened(sessions, 50, EVICTION_S + 3) == 0
    assert opened(sessions, 2, EVICTION_S + 3, is_follower=True) > 0
    with pytest.raises(KafkaError):
        use(sessions, followers[0], 3, EVICTION_S + 3)


def test_a_follower_that_follows_more_makes_readers_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.server.replication.fetch_session.MAX_PARTITIONS", 10)
    sessions = FetchSessionCache(5, random.Random(1))
    follower, reader_ = opened(sessions, 4, 0.0, is_follower=True), opened(sessions, 6, 0.0)
    more = FetchRequest(session_id=follower, session_epoch=1)
    more.topics = [FetchTopic(topic="u", partitions=[at(0, index) for index in range(6)])]
    resumed = sessions.resume(follower, 1, more, uses_topic_ids=False, now=1.0)
    assert resumed is not None and len(resumed.items) == 10
    with pytest.raises(KafkaError):
        use(sessions, reader_, 1, 1.0)
    more.session_epoch = 2
    more.topics = [FetchTopic(topic="v", partitions=[at(0)])]
    with pytest.raises(KafkaError):
        sessions.resume(follower, 2, more, uses_topic_ids=False, now=1.0)
    assert len(sessions) == 0


def test_one_connection_does_not_fill_the_cache() -> None:
    sessions = FetchSessionCache(100, random.Random(1))
    greedy = [opened(sessions, 1, 0.0, client=("h", 1)) for _ in range(150)]
    assert all(greedy[:100]) and not any(greedy[100:]), "its own sessions are young"
    readers = [opened(sessions, 1, 1.0, client=("h", port)) for port in range(2, 101)]
    assert all(readers) and len(sessions) == 100
    for session_id in readers:
        use(sessions, session_id, 1, 1.0)
    # Each has one, and nobody takes that: otherwise readers would take it from one another without end.
    assert opened(sessions, 1, 2.0, client=("h", 101)) == 0
    assert opened(sessions, 9, 2.0, client=("h", 1)) == 0
    use(sessions, greedy[99], 1, 2.0)


def test_addresses_share_the_cache_however_many_connections_one_has() -> None:
    sessions = FetchSessionCache(100, random.Random(1))
    for port in range(100):
        assert opened(sessions, 1, 0.0, client=("greedy", port))
    readers = [opened(sessions, 1, 1.0, client=("other", port)) for port in range(60)]
    assert sum(map(bool, readers)) == 50
    # Larger sessions of an address that has more do not take the places of smaller ones of others later either.
    use(sessions, readers[0], 1, 1.5)
    third = opened(sessions, 1, 1.6, client=("third", 1))
    assert third
    later = EVICTION_S + 1.0
    for session_id in list(sessions._sessions):
        use(sessions, session_id, sessions._sessions[session_id].epoch, later - 1)
    for port in range(200, 300):
        opened(sessions, 50, later, client=("greedy", port))
    use(sessions, third, 2, later)


def test_one_large_session_makes_room_for_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.server.replication.fetch_session.MAX_PARTITIONS", 1000)
    sessions = FetchSessionCache(100, random.Random(1))
    greedy = opened(sessions, 995, 0.0, client=("h", 1))
    assert greedy
    assert opened(sessions, 10, 0.0, client=("h", 2))
    with pytest.raises(KafkaError):
        use(sessions, greedy, 1, 0.0)
    assert opened(sessions, 995, 0.0, client=("h", 1)) == 0
    # A follower's stays, however large it is.
    follower = opened(sessions, 980, 0.0, client=("f", 1), is_follower=True)
    assert opened(sessions, 30, 0.0, client=("h", 3)) == 0
    use(sessions, follower, 1, 0.0)


def test_a_closed_session_gives_its_share_back() -> None:
    sessions = FetchSessionCache(3, random.Random(1))
    kept = [opened(sessions, 2, 0.0, client=("h", port)) for port in range(3)]
    for session_id in kept:
        use(sessions, session_id, 1, 0.0)
        sessions.close(session_id)
    for used in (sessions._sessions_used, sessions._partitions_used):
        assert not used._by_client and not used._by_address


@pytest.mark.parametrize("version", [12, LAST])
def test_a_reader_gets_a_session_while_another_connection_opens_as_many_as_there_are(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        topic_id = plane.topic_id() if version >= 13 else None
        greedy, other = await plane.connect(), await plane.connect()
        for _ in range(5):
            await greedy.send(fetch(at(0), topic_id=topic_id, session_epoch=0), version)
        answer = await other.send(fetch(at(0), topic_id=topic_id, session_epoch=0), version)
        assert answer.session_id
        greedy.close()
        other.close()

    play(talk, settings={"max.incremental.fetch.session.cache.slots": "3"})


@pytest.mark.parametrize("version", [12, LAST])
def test_who_fetches_as_a_follower_gets_a_place_among_readers(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        reader_, follower = await reader(plane, version), await reader(plane, version)
        assert (await reader_.ask(at(0))).session_id > 0
        whose = {"replica_state": ReplicaState(replica_id=2)} if version >= 15 else {"replica_id": 2}
        assert (await follower.ask(at(0), **whose)).session_id > 0
        assert (await reader_.ask()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    play(talk, settings={**PAGE_CACHE, "max.incremental.fetch.session.cache.slots": "1"})
