"""What a leader has brought goes into the log in steps, each in a turn of the loop; another rebalance ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.server.coordinator.coordinator_log import Entry
from barnabas.server.coordinator.group import assignments
from barnabas.server.coordinator.group.assignments import NewAssignment
from barnabas.server.coordinator.group.group import Group
from barnabas.server.coordinator.group.group_records import group_entry
from barnabas.server.coordinator.group.group_writer import GroupWriter
from barnabas.server.coordinator.group.member import Member
from barnabas.server.coordinator.group.states import GroupState
from barnabas.server.runtime.turns import Turns


class Loop:
    """Turns one after the other, when the test says so."""

    def __init__(self) -> None:
        self._ready: list[Callable[[], None]] = []

    def call_soon(self, work: Callable[[], None]) -> None:
        self._ready.append(work)

    def turn(self) -> None:
        ready, self._ready = self._ready, []
        for work in ready:
            work()


class Writer:
    """A log that is as slow as the test wants it."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.done: Callable[[ErrorCode], None] | None = None

    def store(self, group: Group, entry: Entry, done: Callable[[ErrorCode], None]) -> bool:
        self.entries.append(entry)
        self.done = done
        return True


class Course:
    """A group of five whose leader has brought the assignment; two members are encoded in a turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(assignments, "MEMBERS", 2)
        self.group = Group("g", 0)
        for name in "abcde":
            self.group.add(Member(name, None, "c", "/h", 1000, 1000, "consumer", (("range", b""),)))
        self.group.transition_to(GroupState.PREPARING_REBALANCE, 0)
        self.group.begin_generation(0)
        self.loop, self.writer = Loop(), Writer()
        self.outcomes: list[ErrorCode] = []
        self.given = {name: name.encode() for name in "abcde"}
        turns = Turns(cast(asyncio.AbstractEventLoop, self.loop), lambda: None)
        NewAssignment(self.group, self.given, cast(GroupWriter, self.writer), turns, self._stored).begin()

    def _stored(self, new: NewAssignment, outcome: ErrorCode) -> None:
        assert new.group is self.group and new.assignments == self.given
        self.outcomes.append(outcome)

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.loop.turn()


ENCODED = 3
"""Turns that five members take, two in each."""


@pytest.mark.parametrize("outcome", [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR])
def test_members_are_encoded_in_turns_then_the_record_is_written_and_then_its_outcome_told(
    outcome: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    course = Course(monkeypatch)
    course.turns(ENCODED)
    assert course.writer.entries == []
    course.turns(1)
    assert course.writer.entries == [group_entry(course.group, course.given)]
    course.turns(5)
    assert course.outcomes == [] and course.writer.done is not None
    course.writer.done(outcome)
    assert course.outcomes == []
    course.turns(1)
    assert course.outcomes == [outcome]


@pytest.mark.parametrize("turns", range(ENCODED + 1))
def test_nothing_is_written_once_another_rebalance_has_begun(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    course = Course(monkeypatch)
    course.turns(turns)
    course.group.transition_to(GroupState.PREPARING_REBALANCE, 1)
    course.turns(ENCODED + 2)
    assert course.writer.entries == []


@pytest.mark.parametrize("is_generation_new", [False, True])
def test_nobody_is_told_what_became_durable_after_that(
    *, is_generation_new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    course = Course(monkeypatch)
    course.turns(ENCODED + 1)
    assert course.writer.done is not None
    course.group.transition_to(GroupState.PREPARING_REBALANCE, 1)
    if is_generation_new:
        course.group.begin_generation(2)
        assert course.group.state is GroupState.COMPLETING_REBALANCE
    course.writer.done(ErrorCode.NONE)
    course.turns(2)
    assert course.outcomes == []
