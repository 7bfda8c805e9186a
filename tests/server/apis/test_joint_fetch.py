"""Equal fetches of consumers that wait together: each gets the response that it would get alone."""

from __future__ import annotations

import asyncio
import random
import struct
from collections import Counter
from typing import Any

import pytest
from tests.frames import framed, request_body
from tests.server.apis.test_fetch import append_control, append_transactional
from tests.server.data_plane import (
    PAGE_CACHE,
    DataPlane,
    at,
    batch,
    fetch,
    fetched,
    only_fetched,
    play,
    values_in,
)
from tests.server.quotas.test_enforcement import set_quota

from barnabas.clients.connection import BrokerConnection
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.joint_fetch import SharedFetchResponse
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.record_batch import iter_batches
from barnabas.protocol.record_batch_builder import ControlType
from barnabas.server.apis.handlers.fetch import PendingFetch
from barnabas.server.apis.joint_fetch import JOINABLE_PART, MAX_MEMBERS, FetchGroup, JointFetch, Member
from barnabas.server.replication.delayed_operation import DelayedOperationPurgatory

LONG_MS = 60_000


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The number of requests in groups, and of groups."""
    counts: Counter[str] = Counter()
    original = FetchGroup.add

    def add(self: FetchGroup, connection: Any, member: Member) -> None:
        counts["members"] += 1
        counts["groups"] += not self._members
        original(self, connection, member)

    monkeypatch.setattr(FetchGroup, "add", add)
    return counts


class Consumer:
    """A client that reads one partition, with or without a fetch session."""

    def __init__(
        self,
        plane: DataPlane,
        connection: BrokerConnection,
        version: int = 12,
        *,
        topic: str = "t",
        index: int = 0,
        isolation: int = 0,
        has_session: bool = True,
    ) -> None:
        self.plane = plane
        self.connection = connection
        self.version = version
        self.topic = topic
        self.index = index
        self.isolation = isolation
        self.has_session = has_session
        self.session_id = 0
        self.epoch = 0 if has_session else -1
        self.offset = 0

    def send(self, wait_ms: int, **options: Any) -> asyncio.Future[FetchResponse]:
        request = fetch(
            at(self.offset, self.index, **options),
            topic=self.topic,
            topic_id=self.plane.topic_id(self.topic),
            max_wait_ms=wait_ms,
            isolation_level=self.isolation,
            session_id=self.session_id,
            session_epoch=self.epoch,
        )
        return self.connection.send(request, self.version)

    def take(self, response: FetchResponse) -> None:
        """Continue after the records of a response."""
        assert response.error_code == ErrorCode.NONE
        if self.has_session:
            assert response.session_id > 0
            self.session_id, self.epoch = response.session_id, self.epoch + 1
        for data in fetched(response).values():
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:  # others are not followed by a further request
                self.offset = self.plane.partition(self.topic, self.index).log.log_start_offset
            for one in iter_batches(bytes(data.records or b"")):
                self.offset = one.last_offset + 1

    async def drain(self) -> None:
        """Read all records."""
        while True:
            response = await self.send(0)
            self.take(response)
            if not any(data.records or data.error_code for data in fetched(response).values()):
                return


async def consumers(plane: DataPlane, count: int, version: int = 12, **options: Any) -> list[Consumer]:
    return [Consumer(plane, await plane.connect(f"c{number}"), version, **options) for number in range(count)]


async def all_wait(plane: DataPlane, count: int) -> None:
    await plane.until(lambda: plane.state.replica_manager.delayed_operations["Fetch"] == count)


def comparable(response: FetchResponse) -> Any:
    """The response without the number of its session."""
    topics = [
        (topic.topic, topic.topic_id, [(data, bytes(data.records or b"")) for data in topic.partitions])
        for topic in response.responses
    ]
    for *_, partitions in topics:
        for data, _ in partitions:
            data.records = None
    return response.error_code, response.session_id > 0, topics, response.node_endpoints


async def play_rounds(plane: DataPlane, rng: random.Random) -> list[Any]:
    """Consumers of all kinds wait, and receive what each event of a round gives them."""
    found: list[Any] = []
    await plane.create_topic("doomed")
    readers: list[Consumer] = []
    versions = rng.sample(range(7, 19), 2)
    for number in range(60):
        version, has_session = rng.choice(versions), rng.random() < 0.7
        options: dict[str, Any] = {"isolation": int(rng.random() < 0.3), "has_session": has_session}
        options |= {"topic": "doomed"} if number % 4 == 0 else {"index": int(rng.random() < 0.1)}
        readers.append(Consumer(plane, await plane.connect(f"c{number}"), version, **options))

    async def aborted() -> None:
        append_transactional(plane, 7, b"aborted")
        append_control(plane, 7, ControlType.ABORT)

    async def small() -> None:
        for index in (0, 1):
            await plane.append(batch(b"small"), index=index)

    async def large() -> None:
        await plane.append(batch(rng.randbytes(100_000)))

    async def deleted() -> None:
        await plane.append(batch(b"deleted", b"kept"))
        plane.partition().delete_records(plane.partition().log.log_end_offset - 1)

    async def nothing() -> None:
        await asyncio.sleep(1)

    async def no_topic() -> None:
        await plane.delete_topic("doomed")

    events = [small, aborted, large, nothing, deleted, small]
    rng.shuffle(events)
    for event in (*events, no_topic):
        for reader in readers:
            await reader.drain()
        rng.shuffle(readers)
        sent = [reader.send(1000) for reader in readers]
        await all_wait(plane, len(sent))
        for place in rng.sample(range(len(sent)), 2):
            readers[place].connection.close()
        await event()
        responses = await asyncio.gather(*sent, return_exceptions=True)
        for reader, response in list(zip(readers, responses, strict=True)):
            if isinstance(response, FetchResponse):
                found.append((reader.topic, reader.index, reader.version, comparable(response)))
                reader.take(response)
            else:
                readers.remove(reader)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_responses_are_those_of_requests_that_wait_alone(
    seed: int, joined: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[Any]] = []

    async def talk(plane: DataPlane) -> None:
        found.append(await play_rounds(plane, random.Random(seed)))
        assert not plane.state.replica_manager._fetch_purgatory.watchers
        assert not joint_fetch(plane).groups

    play(talk, settings=PAGE_CACHE)
    assert joined["members"] - joined["groups"] > 100, "that many requests have joined others"
    monkeypatch.setattr(JointFetch, "lead", lambda *_: None)
    joined.clear()
    play(talk, settings=PAGE_CACHE)
    assert not joined
    together, alone = found
    assert together == alone
    assert len(alone) > 150


async def play_alone(plane: DataPlane, rng: random.Random) -> list[Any]:
    """Consumers of one partition each repeat their requests, and receive what each event gives them."""
    found: list[Any] = []
    await plane.create_topic("own", 12)
    readers: list[Consumer] = []
    for index in range(12):
        options: dict[str, Any] = {"isolation": int(rng.random() < 0.4), "has_session": rng.random() < 0.8}
        connection = await plane.connect(f"c{index}")
        readers.append(Consumer(plane, connection, rng.randrange(7, 19), topic="own", index=index, **options))

    async def small(index: int) -> None:
        await plane.append(batch(b"small", b"er"), topic="own", index=index)

    async def aborted(index: int) -> None:
        append_transactional(plane, 7, b"aborted", topic="own", index=index)
        append_control(plane, 7, ControlType.ABORT, topic="own", index=index)

    async def large(index: int) -> None:
        await plane.append(batch(rng.randbytes(100_000)), topic="own", index=index)

    async def deleted(index: int) -> None:
        await plane.append(batch(b"deleted", b"kept"), topic="own", index=index)
        log = plane.partition("own", index).log
        plane.partition("own", index).delete_records(log.log_end_offset - 1)

    async def nothing(index: int) -> None:
        await asyncio.sleep(1)

    async def lost(index: int) -> None:
        plane.state.fetch_sessions.close(readers[index].session_id)
        await small(index)

    for step in range(25):
        events = [rng.choice([small, small, small, aborted, large, deleted, nothing, lost]) for _ in readers]
        for reader in readers:
            if rng.random() < 0.1:
                reader.epoch += 1  # wrong, or of a request without a session
            if rng.random() < 0.1:
                reader.session_id += 1
        sent = [reader.send(1000) for reader in readers]
        if step % 3 == 0:  # the others wait when their records arrive
            await asyncio.sleep(0.1)
        if step == 20:
            await plane.delete_topic("own")
        else:
            for reader, event in zip(readers, events, strict=True):
                await event(reader.index)
        for reader, response in zip(readers, await asyncio.gather(*sent), strict=True):
            found.append((reader.index, reader.version, reader.offset, comparable(response)))
            if response.error_code == ErrorCode.NONE and (response.session_id or not reader.has_session):
                reader.take(response)
            else:
                reader.session_id, reader.epoch = 0, 0 if reader.has_session else -1
        if step == 20:
            await plane.create_topic("own", 12)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_responses_to_repeated_requests_are_those_to_other_requests(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[list[Any]] = []
    counts: Counter[bool] = Counter()
    original = PendingFetch.repeat

    def repeat(self: PendingFetch, *args: Any) -> bool:
        is_repeated = original(self, *args)
        counts[is_repeated] += 1
        return is_repeated

    async def talk(plane: DataPlane) -> None:
        found.append(await play_alone(plane, random.Random(seed)))
        assert not plane.state.replica_manager._fetch_purgatory.watchers

    monkeypatch.setattr(PendingFetch, "repeat", repeat)
    play(talk, settings=PAGE_CACHE)
    assert counts[True] > 50
    assert counts[False] > 5, "sessions are lost, and epochs are wrong"
    monkeypatch.setattr(JointFetch, "keep", lambda *_: None)
    counts.clear()
    play(talk, settings=PAGE_CACHE)
    assert not counts
    repeated, others = found
    assert repeated == others


def test_a_repeated_request_does_not_change_the_session_of_an_equal_request() -> None:
    """Sessions of equal requests have the same partition object, and a session without a change keeps its offset."""

    async def talk(plane: DataPlane) -> None:
        readers, waiting = await in_a_group(plane, 3)
        await plane.append(batch(b"one"))
        for reader, response in zip(readers, await asyncio.gather(*waiting), strict=True):
            reader.take(response)
        await plane.append(batch(b"two"))
        for _ in range(2):
            for reader in readers[:2]:
                reader.take(await reader.send(0))
        assert [reader.offset for reader in readers] == [2, 2, 1]
        # The session of the third consumer is still at the offset of its last request.
        last = readers[2]
        unchanged = fetch(topic_id=plane.topic_id(), session_id=last.session_id, session_epoch=last.epoch)
        unchanged.topics = []
        response = await last.connection.send(unchanged, last.version)
        assert values_in(only_fetched(response)) == [b"one", b"two"]

    play(talk, settings=PAGE_CACHE)


def joint_fetch(plane: DataPlane) -> JointFetch:
    return plane.server.apis._joint_fetch


def test_more_consumers_than_a_group_has_members(joined: Counter[str]) -> None:
    async def talk(plane: DataPlane) -> None:
        readers = await consumers(plane, 3 * MAX_MEMBERS)
        for number in range(3):
            joined.clear()
            for reader in readers:
                await reader.drain()
            waiting = [reader.send(LONG_MS) for reader in readers]
            await all_wait(plane, len(readers))
            await plane.append(batch(b"%d" % number))
            for reader, response in zip(readers, await asyncio.gather(*waiting), strict=True):
                assert values_in(only_fetched(response)) == [b"%d" % number]
                reader.take(response)
            assert joined["groups"] <= 4 and joined["members"] >= len(readers) - 2

    play(talk, settings=PAGE_CACHE)


def test_consumers_that_disconnect_leave_their_group() -> None:
    async def talk(plane: DataPlane) -> None:
        purgatory = plane.state.replica_manager._fetch_purgatory
        readers = await consumers(plane, 10, has_session=False)
        waiting = [reader.send(LONG_MS) for reader in readers]
        await all_wait(plane, 10)
        for number, reader in enumerate(readers[:9]):
            reader.connection.close()
            await all_wait(plane, 9 - number)
        await plane.append(batch(b"v"))
        assert values_in(only_fetched(await waiting[9])) == [b"v"]
        readers[9].offset = 1
        others = await consumers(plane, 3, has_session=False)
        for reader in others:
            reader.offset = 1
        waiting += [reader.send(LONG_MS) for reader in (readers[9], *others)]
        await all_wait(plane, 4)
        for reader in (readers[9], *others):
            reader.connection.close()
        await plane.until(lambda: not purgatory.watchers, seconds=5)
        assert not joint_fetch(plane).groups
        await asyncio.gather(*waiting, return_exceptions=True)

    play(talk, settings=PAGE_CACHE)


def test_requests_join_only_at_the_beginning_of_a_wait(joined: Counter[str]) -> None:
    async def talk(plane: DataPlane) -> None:
        readers = await consumers(plane, 6, has_session=False)
        spent: dict[int, float] = {}

        async def fetch_once(number: int) -> None:
            began = plane.loop.time()
            assert not only_fetched(await readers[number].send(10_000)).records
            spent[number] = plane.loop.time() - began

        tasks = [asyncio.ensure_future(fetch_once(number)) for number in range(4)]
        await all_wait(plane, 4)
        assert (joined["groups"], joined["members"]) == (1, 3)
        await asyncio.sleep(10 * JOINABLE_PART + 0.1)
        tasks += [asyncio.ensure_future(fetch_once(number)) for number in (4, 5)]
        await all_wait(plane, 6)
        assert (joined["groups"], joined["members"]) == (2, 5)
        await asyncio.gather(*tasks)
        assert all(10 * (1 - JOINABLE_PART) <= seconds < 11 for seconds in spent.values())

    play(talk, settings=PAGE_CACHE)


def test_requests_that_are_not_equal_wait_alone(joined: Counter[str]) -> None:
    async def talk(plane: DataPlane) -> None:
        readers = await consumers(plane, 6, has_session=False)
        waiting = [reader.send(LONG_MS) for reader in readers[:3]]
        await all_wait(plane, 3)
        assert joined["members"] == 2
        readers[3].isolation = 1
        readers[4].version = 11
        waiting += [readers[3].send(LONG_MS), readers[4].send(LONG_MS), readers[5].send(LONG_MS, max_bytes=7)]
        await all_wait(plane, 6)
        await plane.append(batch(b"v"))
        for response in await asyncio.gather(*waiting):
            assert values_in(only_fetched(response)) == [b"v"]
        assert joined["members"] == joined["groups"] + 1, "one request has joined another"

    play(talk, settings=PAGE_CACHE)


async def in_a_group(plane: DataPlane, count: int = 4) -> tuple[list[Consumer], list[asyncio.Future[FetchResponse]]]:
    """Consumers with sessions that wait together for the first record."""
    readers = await consumers(plane, count)
    for reader in readers:
        await reader.drain()
    waiting = [reader.send(LONG_MS) for reader in readers]
    await all_wait(plane, count)
    assert joint_fetch(plane).groups
    return readers, waiting


def test_sessions_are_checked_for_each_request() -> None:
    async def talk(plane: DataPlane) -> None:
        newcomers = await consumers(plane, 5)
        for reader in newcomers:
            await reader.drain()
        wrong_epoch, unknown, by_id, wide, good = newcomers
        wrong_epoch.epoch += 1
        unknown.session_id += 1
        by_id.version = 13
        other = fetch(at(0, 1), session_id=wide.session_id, session_epoch=wide.epoch)
        wide.take(await wide.connection.send(other, 12))
        await plane.append(batch(b"other"), index=1)
        readers, waiting = await in_a_group(plane)
        for reader, error in (
            (wrong_epoch, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
            (unknown, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        ):
            response = await reader.send(LONG_MS)
            assert (response.error_code, response.session_id, response.responses) == (error, 0, [])
        response = await by_id.send(LONG_MS)
        assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        # The other partition of this session has a record.
        response = await wide.send(LONG_MS)
        assert {index: values_in(data) for index, data in fetched(response).items() if data.records} == {1: [b"other"]}
        waiting.append(good.send(LONG_MS))
        await all_wait(plane, 5)
        # The epoch of a request that waits is used.
        repeated = await consumers(plane, 1)
        repeated[0].session_id, repeated[0].epoch = good.session_id, good.epoch
        assert (await repeated[0].send(LONG_MS)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        await plane.append(batch(b"v"))
        for reader, response in zip((*readers, good), await asyncio.gather(*waiting), strict=True):
            assert response.session_id == reader.session_id
            assert values_in(only_fetched(response)) == [b"v"]
            reader.take(response)
            await reader.drain()

    play(talk, settings=PAGE_CACHE)


def test_a_session_is_continued_after_its_connection_is_closed_in_a_group() -> None:
    async def talk(plane: DataPlane) -> None:
        readers, waiting = await in_a_group(plane)
        for place in (0, 2):
            readers[place].connection.close()
        await all_wait(plane, 2)
        await plane.append(batch(b"v"))
        await asyncio.gather(*waiting, return_exceptions=True)
        for place in (0, 2):
            reader = readers[place]
            reader.connection, reader.epoch = await plane.connect(), reader.epoch + 1
            response = await reader.send(LONG_MS)
            assert (response.session_id, values_in(only_fetched(response))) == (reader.session_id, [b"v"])

    play(talk, settings=PAGE_CACHE)


def test_hostile_requests_next_to_a_group() -> None:
    async def talk(plane: DataPlane) -> None:
        readers, waiting = await in_a_group(plane)
        good = fetch(at(0), max_wait_ms=LONG_MS, session_id=readers[0].session_id, session_epoch=readers[0].epoch)
        body = request_body(ApiKey.FETCH, 12, good, client_id="abc")
        broken = [
            body[:10] + b"\xff" + body[11:],
            body[:8] + struct.pack(">h", 3000) + body[10:],
            body[:8] + struct.pack(">h", -2) + body[10:],
            body[:20],
            body[:13],
        ]
        for one in broken:
            client = await plane.raw()
            client.writer.write(framed(one))
            assert await client.is_closed()
        await all_wait(plane, 4)
        await plane.append(batch(b"v"))
        for response in await asyncio.gather(*waiting):
            assert values_in(only_fetched(response)) == [b"v"]

    play(talk, settings=PAGE_CACHE)


def test_pipelined_requests_wait_for_the_response_of_the_group() -> None:
    async def talk(plane: DataPlane) -> None:
        clients = [await plane.raw() for _ in range(5)]
        for client in clients:
            for number in range(3):
                client.send(ApiKey.FETCH, 12, fetch(at(number), max_wait_ms=LONG_MS), number)
        for number in range(3):
            await all_wait(plane, 5)
            await plane.append(batch(b"%d" % number))
            for client in clients:
                correlation_id, response = await client.receive(ApiKey.FETCH, 12)
                assert (correlation_id, values_in(only_fetched(response))) == (number, [b"%d" % number])

    play(talk, settings=PAGE_CACHE)


def test_requests_under_a_quota_wait_alone(joined: Counter[str]) -> None:
    async def talk(plane: DataPlane) -> None:
        readers, waiting = await in_a_group(plane)
        await set_quota(plane, "consumer_byte_rate", 1000.0, client_id="c9")
        await plane.append(batch(b"x" * 20_000))
        for reader, response in zip(readers, await asyncio.gather(*waiting), strict=True):
            assert response.throttle_time_ms == 0
            reader.take(response)
        joined.clear()
        limited = [Consumer(plane, await plane.connect("c9")) for _ in range(3)]
        for reader in limited:
            reader.offset = 1
        for reader in (*readers, *limited):
            await reader.drain()
        waiting = [reader.send(LONG_MS) for reader in (*readers, *limited)]
        await all_wait(plane, 7)
        await plane.append(batch(b"x" * 20_000))
        responses = await asyncio.gather(*waiting)
        assert not joined
        assert not any(response.throttle_time_ms for response in responses[:4])
        assert any(response.throttle_time_ms > 5000 for response in responses[4:])

    play(talk, settings=PAGE_CACHE)


def test_a_response_that_fails_closes_its_connection_only(monkeypatch: pytest.MonkeyPatch) -> None:
    original = SharedFetchResponse.frame
    calls: list[int] = []

    def frame(self: SharedFetchResponse, correlation_id: int, session_id: int) -> Any:
        calls.append(session_id)
        if len(calls) == 2:
            raise RuntimeError("made to fail")
        return original(self, correlation_id, session_id)

    monkeypatch.setattr(SharedFetchResponse, "frame", frame)

    async def talk(plane: DataPlane) -> None:
        _, waiting = await in_a_group(plane)
        await plane.append(batch(b"v"))
        responses = await asyncio.gather(*waiting, return_exceptions=True)
        failed = [response for response in responses if not isinstance(response, FetchResponse)]
        assert len(failed) == 1
        await plane.until(lambda: not plane.state.replica_manager._fetch_purgatory.watchers)

    play(talk, settings=PAGE_CACHE)


def test_a_request_that_arrives_after_the_records_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are checked in several turns if there are many: a request must not join one that is to be answered."""

    async def talk(plane: DataPlane) -> None:
        readers = await consumers(plane, 4, has_session=False)
        waiting = [reader.send(LONG_MS) for reader in readers[:3]]
        await all_wait(plane, 3)
        assert joint_fetch(plane).groups
        with monkeypatch.context() as patch:
            patch.setattr(DelayedOperationPurgatory, "check_and_complete", lambda *_: None)
            await plane.append(batch(b"v"))
            response = await readers[3].send(LONG_MS)
        assert values_in(only_fetched(response)) == [b"v"]
        # The first one has no group.
        for response in await asyncio.gather(*waiting[1:]):
            assert values_in(only_fetched(response)) == [b"v"]
        readers[0].connection.close()
        await asyncio.gather(waiting[0], return_exceptions=True)

    play(talk, settings=PAGE_CACHE)
