"""A delayed operation completes exactly once, by its condition or by its deadline, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from barnabas.server.replication.delayed_operation import (
    CHECKED_TOGETHER,
    KEYS_PER_STEP,
    DelayedOperation,
    DelayedOperationPurgatory,
)
from barnabas.server.runtime.loop_sharing import SLICE_SECONDS, SlicedWork

PER_TURN = 10
"""Operations that take as long as one turn has for them."""
MANY = 500


def new_purgatory(*, checks_later: bool = False) -> DelayedOperationPurgatory:
    """A purgatory whose stopwatch moves by a tenth of a turn's budget with each operation."""
    loop, clock = asyncio.get_running_loop(), count()
    sliced_work = SlicedWork(loop, lambda: next(clock) * SLICE_SECONDS / PER_TURN)
    return DelayedOperationPurgatory("test", loop, sliced_work, checks_later=checks_later)


class Waiting(DelayedOperation):
    def __init__(self, diary: list[Waiting] | None = None) -> None:
        super().__init__()
        self.size = 1
        self.diary = [] if diary is None else diary
        self.checks = 0
        self.ready = False
        self.events: list[str] = []
        self.done = asyncio.Event()

    def try_complete(self) -> bool:
        self.checks += 1
        return self.ready and self.force_complete()

    def on_expiration(self) -> None:
        self.events.append("expired")

    def on_complete(self) -> None:
        self.events.append("completed")
        self.diary.append(self)
        self.done.set()


async def test_the_condition_completes_it_once() -> None:
    purgatory = new_purgatory()
    operation = Waiting()
    purgatory.watch(operation, ["a", "b"], timeout_ms=60_000)
    purgatory.check_and_complete("a")
    assert operation.events == []
    operation.ready = True
    purgatory.check_and_complete("b")
    purgatory.check_and_complete("a")
    assert operation.events == ["completed"]
    assert len(purgatory) == 0
    assert not operation.force_complete()


async def test_the_deadline_completes_it() -> None:
    purgatory = new_purgatory()
    operation = Waiting()
    purgatory.watch(operation, ["a"], timeout_ms=1)
    await asyncio.wait_for(operation.done.wait(), 60)
    assert operation.events == ["expired", "completed"]
    assert len(purgatory) == 0


async def test_cancelling_answers_nobody() -> None:
    purgatory = new_purgatory()
    operation = Waiting()
    purgatory.watch(operation, ["a"], timeout_ms=60_000)
    operation.cancel()
    operation.ready = True
    purgatory.check_and_complete("a")
    assert operation.events == []
    assert len(purgatory) == 0


async def test_shutdown_answers_everyone() -> None:
    purgatory = new_purgatory()
    waiting = [Waiting(), Waiting()]
    for operation in waiting:
        purgatory.watch(operation, ["a"], timeout_ms=60_000)
    purgatory.complete_all()
    assert [operation.events for operation in waiting] == [["expired", "completed"]] * 2


def park(
    purgatory: DelayedOperationPurgatory, number: int, key: str, diary: list[Waiting], timeout_ms: float = 60_000
) -> list[Waiting]:
    waiting = [Waiting(diary) for _ in range(number)]
    for operation in waiting:
        operation.ready = True
        purgatory.watch(operation, [key], timeout_ms)
    return waiting


async def completions_per_turn(diary: list[Waiting], number: int) -> list[int]:
    """Operations that complete in each turn of the loop, until so many have."""
    turns = [len(diary)]
    async with asyncio.timeout(60):
        while sum(turns) < number:
            await asyncio.sleep(0)
            turns.append(len(diary) - sum(turns))
    return turns


async def test_few_operations_complete_before_the_check_returns() -> None:
    purgatory, diary = new_purgatory(), list[Waiting]()
    waiting = park(purgatory, CHECKED_TOGETHER, "a", diary)
    purgatory.check_and_complete("a")
    assert diary == waiting


async def test_the_check_of_many_requests_begins_after_the_change() -> None:
    """The response to a producer, which is sent after the change, does not wait for those to its consumers."""
    purgatory, diary = new_purgatory(checks_later=True), list[Waiting]()
    few, group = park(purgatory, 2, "few", diary), park(purgatory, 1, "group", diary)
    many = park(purgatory, 2, "many", diary)
    group[0].size = many[0].size = CHECKED_TOGETHER
    for key in ("many", "few", "group"):
        purgatory.check_and_complete(key)
    assert diary == [*few, *group], "few requests, and a single operation, are not delayed"
    await completions_per_turn(diary, 5)
    assert diary == [*few, *group, *many]
    assert len(purgatory) == 0


async def test_many_operations_of_one_key_complete_in_order_and_in_several_turns() -> None:
    purgatory, diary = new_purgatory(), list[Waiting]()
    waiting = park(purgatory, MANY, "a", diary)
    purgatory.check_and_complete("a")
    turns = await completions_per_turn(diary, MANY)
    assert max(turns) <= PER_TURN
    assert diary == waiting
    assert all(operation.events == ["completed"] for operation in waiting)
    assert len(purgatory) == 0


async def test_many_operations_with_one_deadline_expire_in_order_and_in_several_turns() -> None:
    purgatory, diary = new_purgatory(), list[Waiting]()
    waiting = park(purgatory, MANY, "a", diary, timeout_ms=0)
    turns = await completions_per_turn(diary, MANY)
    assert max(turns) <= PER_TURN
    assert diary == waiting
    assert all(operation.events == ["expired", "completed"] for operation in waiting)
    (late,) = park(purgatory, 1, "a", diary, timeout_ms=0)
    await asyncio.wait_for(late.done.wait(), 60)


async def test_a_key_with_few_operations_does_not_wait_for_a_key_with_many() -> None:
    purgatory, diary = new_purgatory(), list[Waiting]()
    park(purgatory, MANY, "a", diary)
    few = park(purgatory, CHECKED_TOGETHER + 1, "b", diary)
    purgatory.check_and_complete("a")
    purgatory.check_and_complete("b")
    await completions_per_turn(diary, MANY + len(few))
    assert diary.index(few[-1]) < 6 * CHECKED_TOGETHER


async def test_a_change_during_a_check_is_seen_by_operations_that_were_checked_before_it() -> None:
    purgatory, diary = new_purgatory(), list[Waiting]()
    waiting = park(purgatory, MANY, "a", diary)
    first = waiting[0]
    first.ready = False
    purgatory.check_and_complete("a")
    assert first.checks == 1
    assert waiting[-1].checks == 0
    first.ready = True
    purgatory.check_and_complete("a")
    await completions_per_turn(diary, MANY)
    assert first.events == ["completed"]


async def test_constant_changes_do_not_keep_a_check_from_its_last_operation() -> None:
    purgatory, diary = new_purgatory(), list[Waiting]()
    waiting = park(purgatory, MANY, "a", diary)
    for operation in waiting[:-1]:
        operation.ready = False
    for _ in range(MANY):
        purgatory.check_and_complete("a")
        await asyncio.sleep(0)
    assert diary == waiting[-1:]


async def test_an_operation_that_fails_costs_no_other_its_completion(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Waiting):
        def on_complete(self) -> None:
            raise ValueError("fails on purpose")

    purgatory, diary = new_purgatory(), list[Waiting]()
    for deadline_ms in (60_000, 0):
        failing = Failing()
        failing.ready = True
        purgatory.watch(failing, ["a"], deadline_ms)
        park(purgatory, MANY, "a", diary, deadline_ms)
        purgatory.check_and_complete("a")
        await completions_per_turn(diary, MANY)
        diary.clear()
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["fails on purpose"] * 2


async def until_watched(purgatory: DelayedOperationPurgatory, count: int) -> int:
    """Yield until so many keys are watched; return the number of turns of the loop."""
    turns = 0
    while len(purgatory.watchers) != count:
        turns += 1
        await asyncio.sleep(0)
    return turns


async def test_many_keys_are_watched_and_removed_in_slices() -> None:
    purgatory, operation = new_purgatory(), Waiting()
    count = 100 * KEYS_PER_STEP
    purgatory.watch(operation, range(count), timeout_ms=60_000)
    assert len(purgatory.watchers) < count / 5
    assert await until_watched(purgatory, count) >= 5
    assert operation.checks == 1  # once more after the last key: one may have changed before it was watched
    operation.ready = True
    purgatory.check_and_complete(count - 1)
    assert operation.events == ["completed"]
    assert len(purgatory.watchers) > count / 2
    purgatory.check_and_complete(count - 2)  # of the completed operation
    assert await until_watched(purgatory, 0) >= 5
    assert operation.events == ["completed"] and operation.checks == 2


async def test_a_change_before_the_last_key_is_watched_is_not_missed() -> None:
    purgatory, operation = new_purgatory(), Waiting()
    count = 100 * KEYS_PER_STEP
    purgatory.watch(operation, range(count), timeout_ms=60_000)
    purgatory.check_and_complete(count - 1)
    assert operation.checks == 0
    operation.ready = True
    await asyncio.wait_for(operation.done.wait(), 10)
    await until_watched(purgatory, 0)


async def test_an_operation_that_completes_while_its_keys_are_watched_leaves_none() -> None:
    purgatory, operation = new_purgatory(), Waiting()
    purgatory.watch(operation, range(100 * KEYS_PER_STEP), timeout_ms=60_000)
    operation.cancel()
    await until_watched(purgatory, 0)
    for _ in range(100):
        await asyncio.sleep(0)
    assert not purgatory.watchers and not operation.events


async def test_a_response_that_fails_does_not_keep_other_operations_waiting(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Waiting):
        def on_complete(self) -> None:
            raise ValueError("a response that cannot be sent")

    purgatory = new_purgatory()
    operations = [Failing(), Waiting()]
    for operation in operations:
        purgatory.watch(operation, ["a"], timeout_ms=60_000)
    purgatory.force_complete("a")
    assert operations[1].events == ["completed"]
    assert "a delayed operation of purgatory test failed" in caplog.text
    assert len(purgatory) == 0


async def test_an_operation_that_does_not_wait_violates_an_invariant() -> None:
    purgatory, operation = new_purgatory(), Waiting()
    purgatory.watch(operation, ["a", "b"], timeout_ms=60_000)
    purgatory.check_invariants()
    with pytest.raises(AssertionError, match="cannot wait"):
        purgatory.watch(operation, ["c"], timeout_ms=60_000)
    purgatory.watchers["c"] = {operation: None}
    with pytest.raises(AssertionError, match="does not wait for 'c'"):
        purgatory.check_invariants()
    del purgatory.watchers["c"]
    operation.purgatory = None
    with pytest.raises(AssertionError, match="does not wait here"):
        purgatory.check_invariants()
