"""What a leader has brought goes into the log in steps, each in a turn of the loop; another rebalance ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.server.coordinator.coordinator_log import CoordinatorRecord
from barnabas.server.coordinator.group import classic_group_manager
from barnabas.server.coordinator.group.classic_group import ClassicGroup, ClassicGroupMember, ClassicGroupState
from barnabas.server.coordinator.group.classic_group_manager import AssignmentWrite, ClassicGroupManager
from barnabas.server.coordinator.group.group_records import new_group_metadata_record
from barnabas.server.runtime.loop_sharing import TurnQueue


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
    """A manager whose log is as slow as the test requires."""

    def __init__(self) -> None:
        self.entries: list[CoordinatorRecord] = []
        self.done: Callable[[ErrorCode], None] | None = None
        self.outcomes: list[ErrorCode] = []

    def store(self, group: ClassicGroup, entry: CoordinatorRecord, done: Callable[[ErrorCode], None]) -> bool:
        self.entries.append(entry)
        self.done = done
        return True

    def complete_sync(self, group: ClassicGroup, assignments: dict[str, bytes], outcome: ErrorCode) -> None:
        assert list(assignments) == list(group.members)
        self.outcomes.append(outcome)


class Course:
    """A group of five whose leader has brought the assignment; two members are encoded in a turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(classic_group_manager, "ENCODED_MEMBERS_PER_TURN", 2)
        self.group = ClassicGroup("g", 0)
        for name in "abcde":
            self.group.add(ClassicGroupMember(name, None, "c", "/h", 1000, 1000, "consumer", (("range", b""),)))
        self.group.transition_to(ClassicGroupState.PREPARING_REBALANCE, 0)
        self.group.begin_generation(0)
        self.loop, self.writer = Loop(), Writer()
        self.given = {name: name.encode() for name in "abcde"}
        turns = TurnQueue(cast(asyncio.AbstractEventLoop, self.loop), lambda: None)
        AssignmentWrite(cast(ClassicGroupManager, self.writer), turns, self.group, self.given).begin()

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
    assert course.writer.entries == [new_group_metadata_record(course.group, course.given)]
    course.turns(5)
    assert course.writer.outcomes == [] and course.writer.done is not None
    course.writer.done(outcome)
    assert course.writer.outcomes == []
    course.turns(1)
    assert course.writer.outcomes == [outcome]


@pytest.mark.parametrize("turns", range(ENCODED + 1))
def test_nothing_is_written_once_another_rebalance_has_begun(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    course = Course(monkeypatch)
    course.turns(turns)
    course.group.transition_to(ClassicGroupState.PREPARING_REBALANCE, 1)
    course.turns(ENCODED + 2)
    assert course.writer.entries == []


@pytest.mark.parametrize("is_generation_new", [False, True])
def test_nobody_is_told_what_became_durable_after_that(
    *, is_generation_new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    course = Course(monkeypatch)
    course.turns(ENCODED + 1)
    assert course.writer.done is not None
    course.group.transition_to(ClassicGroupState.PREPARING_REBALANCE, 1)
    if is_generation_new:
        course.group.begin_generation(2)
        assert course.group.state is ClassicGroupState.COMPLETING_REBALANCE
    course.writer.done(ErrorCode.NONE)
    course.turns(2)
    assert course.writer.outcomes == []
