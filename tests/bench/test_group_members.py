"""The members of share groups and streams groups that benchmarks use, with a broker in a simulation."""

from __future__ import annotations

import asyncio
import os
from typing import TypeVar

import pytest
from bench.modern_group_member import HEARTBEAT_S, ModernGroupMember
from bench.share_group_member import ShareGroupMember
from bench.share_load import Phase
from bench.share_session import RELEASE, Acquired, ShareSession, accept
from bench.streams_group_member import StreamsGroupMember
from tests.server.share.share_plane import SharePlane, play_share

from barnabas.protocol.errors import ErrorCode, KafkaError

M = TypeVar("M", bound=ModernGroupMember)
VALUES = [b"v"] * 20


async def joined(plane: SharePlane, kind: type[M], count: int = 1) -> list[M]:
    """Let members join the group `g`, and send their heartbeats until all have an assignment."""
    members = [kind(await plane.connect(), "g", "t") for _ in range(count)]
    for member in members:
        await member.find_coordinator()
        await member.rejoin()
    for _ in range(30):
        for member in members:
            assert await member.heartbeat() is ErrorCode.NONE
        if all(member.synced_at for member in members):
            return members
        await asyncio.sleep(1)
    raise AssertionError("no assignment")


async def sessions_of(plane: SharePlane, members: list[ShareGroupMember]) -> list[ShareSession]:
    return [ShareSession(await plane.connect(), member) for member in members]


@pytest.mark.parametrize("kind", [ShareGroupMember, StreamsGroupMember])
def test_a_member_keeps_its_epoch_with_heartbeats_at_the_interval(kind: type[ModernGroupMember]) -> None:
    async def talk(plane: SharePlane) -> None:
        (member,) = await joined(plane, kind)
        before, epoch = member.heartbeats, member.generation
        heartbeats_task = asyncio.create_task(member.send_heartbeats(0))
        await asyncio.sleep(12 * HEARTBEAT_S - 1)
        assert (member.heartbeats - before, member.generation) == (12, epoch)
        heartbeats_task.cancel()
        await member.leave()
        member.generation = epoch
        assert await member.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID

    play_share(talk)


def test_two_members_of_a_streams_group_share_its_tasks() -> None:
    async def talk(plane: SharePlane) -> None:
        one, other = await joined(plane, StreamsGroupMember, 2)
        assert sorted([*one.active, *other.active]) == [0, 1]

    play_share(talk)


def test_a_phase_acknowledges_all_records_and_awaits_each_released_one() -> None:
    async def talk(plane: SharePlane) -> None:
        produced = 0

        async def produce() -> None:
            nonlocal produced
            while True:
                await plane.produce(*VALUES, index=produced // len(VALUES) % 2)
                produced += len(VALUES)
                await asyncio.sleep(0.1)

        producing = asyncio.create_task(produce())
        sessions = await sessions_of(plane, await joined(plane, ShareGroupMember, 2))
        acquired = [await session.open() for session in sessions]
        delivered = sum(one.record_count for ranges in acquired for one in ranges)
        first = Phase(5, 10_000)
        figures = await first.run(list(map(first.consume, sessions, acquired)), [os.getpid()])
        assert all(value > 0 for value in figures.values()), figures
        assert first.acknowledgements > first.records / 2
        second = Phase(60, 500)
        running = asyncio.create_task(second.run(list(map(second.acknowledge, sessions)), [os.getpid()]))
        await plane.until(lambda: second.is_over, 30)
        producing.cancel()
        await running
        assert second.redelivered_s and all(seconds > 0 for seconds in second.redelivered_s)
        delivered += first.records + second.records - len(second.redelivered_s)
        for session in sessions:
            rest = await session.fetch()
            delivered += sum(one.record_count for one in rest)
            await session.acknowledge(accept(rest))
        assert delivered == produced

    play_share(talk)


def test_a_session_raises_the_error_of_an_acknowledgement() -> None:
    async def talk(plane: SharePlane) -> None:
        await plane.produce(*VALUES)
        owner, other = await sessions_of(plane, await joined(plane, ShareGroupMember, 2))
        # A session may open before the broker has the state of the group; the next fetch waits for it.
        acquired = await owner.open() or await owner.fetch()
        assert acquired == [Acquired(0, 0, len(VALUES) - 1, 1)]
        assert await other.open() == []
        for attempt in (other.fetch, other.acknowledge):
            with pytest.raises(KafkaError) as raised:
                await attempt(accept(acquired))
            assert raised.value.code is ErrorCode.INVALID_RECORD_STATE
        await owner.acknowledge([(acquired[0], [RELEASE])])
        assert await other.fetch() == [acquired[0]._replace(delivery_count=2)]
        await other.close()
        assert await owner.fetch() == [acquired[0]._replace(delivery_count=3)]

    play_share(talk)
