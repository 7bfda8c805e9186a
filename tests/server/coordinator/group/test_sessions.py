"""Deadlines of members, group by group."""

from __future__ import annotations

import asyncio

from barnabas.server.coordinator.group.classic_group import ClassicGroup
from barnabas.server.coordinator.group.member_timers import MemberTimers
from barnabas.simulation.loop import run


def test_a_group_that_goes_leaves_nobody_to_wait_for() -> None:
    expired: list[tuple[str, str]] = []

    async def talk(loop: asyncio.AbstractEventLoop) -> None:
        sessions = MemberTimers[ClassicGroup](loop, lambda group, name: expired.append((group.group_id, name)))
        one, other = ClassicGroup("one", 0), ClassicGroup("other", 0)
        for group in (one, other):
            sessions.restart(group, "a", 1000)
            sessions.begin(group, "b", 2000)
            sessions.begin(group, "b", 5000)  # the first deadline stays
        sessions.end_all(one)
        sessions.end_all(one)
        assert len(sessions) == 2
        await asyncio.sleep(3)
        assert expired == [("other", "a"), ("other", "b")] and not len(sessions)

    run(talk, 7)


def test_a_later_deadline_counts_and_an_earlier_one_at_once() -> None:
    expired: list[str] = []

    async def talk(loop: asyncio.AbstractEventLoop) -> None:
        sessions = MemberTimers[ClassicGroup](loop, lambda _, name: expired.append(name))
        group = ClassicGroup("g", 0)
        sessions.restart(group, "later", 1000)
        sessions.restart(group, "later", 3000)
        sessions.restart(group, "sooner", 5000)
        sessions.restart(group, "sooner", 500)
        await asyncio.sleep(2)
        assert expired == ["sooner"]
        await asyncio.sleep(2)
        assert expired == ["sooner", "later"]

    run(talk, 7)


def test_the_time_of_a_group_is_over_whoever_goes_by_that() -> None:
    """What becomes of the first may take the others along."""
    expired: list[str] = []

    async def talk(loop: asyncio.AbstractEventLoop) -> None:
        def take_all(group: ClassicGroup, name: str) -> None:
            expired.append(name)
            sessions.end_all(group)

        sessions = MemberTimers[ClassicGroup](loop, take_all)
        for name in "abc":
            sessions.restart(ClassicGroup("g", 0) if name == "c" else first, name, 1000)
        sessions.expire("g")
        assert expired == ["a", "c"] and not len(sessions)

    first = ClassicGroup("g", 0)
    run(talk, 7)
