"""Members of a share group that outnumber its partitions receive equal parts of the records."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tests.server.share.share_plane import Member, SharePlane, play_share, ranges
from tests.server.share.test_share_fetch import ACCEPT, error_of

MEMBERS = 12
ROUNDS = 10


@pytest.mark.parametrize("mode", [0, 1])
def test_waiting_members_receive_records_in_turn(mode: int) -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        received = Counter[str]()
        is_over = asyncio.Event()

        async def work(member: Member) -> None:
            """Take records, process them for a second, and accept them."""
            first: tuple[int, ...] = (0,)
            while not is_over.is_set():
                found = ranges(await member.fetch(first, max_wait_ms=5_000, max_records=5, share_acquire_mode=mode))
                first = ()
                if found:
                    received[member.member_id] += sum(last - first_offset + 1 for first_offset, last, _ in found)
                    await asyncio.sleep(1)
                    acks = {0: [(start, last, [ACCEPT]) for start, last, _ in found]}
                    assert error_of(await member.acknowledge(acks)) == 0

        members = [await plane.member(f"m{number}") for number in range(MEMBERS)]
        tasks = [asyncio.create_task(work(member)) for member in members]
        await asyncio.sleep(1)
        for _ in range(MEMBERS * ROUNDS):
            await plane.produce(*[b"v"] * 5)
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)
        is_over.set()
        await asyncio.gather(*tasks)
        assert received.total() == 5 * MEMBERS * ROUNDS and len(received) == MEMBERS
        # Each record is delivered once, and the busiest member has no more than twice the part of another one.
        assert max(received.values()) <= 2 * min(received.values()), received

    play_share(talk)


def test_a_backlog_is_shared_by_members_that_begin_together() -> None:
    async def talk(plane: SharePlane) -> None:
        plane.use_fake_persister()
        for _ in range(MEMBERS):
            await plane.produce(*[b"v"] * 50)
        members = [await plane.member(f"m{number}") for number in range(MEMBERS)]
        responses = await asyncio.gather(
            *(member.fetch((0,), max_wait_ms=1000, max_records=50, batch_size=50) for member in members)
        )
        found = [ranges(response) for response in responses]
        assert sorted(found) == [[(first, first + 49, 1)] for first in range(0, 50 * MEMBERS, 50)]

    play_share(talk)
