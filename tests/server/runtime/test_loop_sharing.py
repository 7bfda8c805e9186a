"""Work in turns: a piece in each turn of the loop, whatever it raises, with new objects collected now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from barnabas.server.runtime.loop_sharing import PIECES_PER_COLLECTION, SLICE_SECONDS, TimeBudget, TurnQueue
from barnabas.simulation.loop import SimLoop, run

Talk = Callable[[TurnQueue, list[str]], Awaitable[None]]


def play(talk: Talk) -> None:
    """Run with a queue and a diary, in which collections are noted."""

    async def main(loop: SimLoop) -> None:
        diary: list[str] = []
        await talk(TurnQueue(loop, lambda: diary.append("collected")), diary)

    run(main, seed=3)


async def diary_after(turns_of_loop: int, diary: list[str]) -> list[str]:
    """What is in it when the loop has been round so many more times; a mark for each."""
    for _ in range(turns_of_loop):
        await asyncio.sleep(0)
        diary.append("|")
    return diary


def test_one_piece_is_done_in_each_turn_and_others_in_between() -> None:
    async def talk(turn_queue: TurnQueue, diary: list[str]) -> None:
        for name in "abc":
            turn_queue.add(partial(diary.append, name))
        assert not diary
        assert await diary_after(4, diary) == ["a", "|", "b", "|", "c", "|", "|"]

    play(talk)


def test_what_a_piece_adds_is_done_after_those_that_wait() -> None:
    async def talk(turn_queue: TurnQueue, diary: list[str]) -> None:
        turn_queue.add(lambda: turn_queue.add(partial(diary.append, "child")))
        turn_queue.add(partial(diary.append, "second"))
        assert await diary_after(3, diary) == ["|", "second", "|", "child", "|"]

    play(talk)


def test_a_piece_that_fails_is_reported_and_keeps_nobody_from_his_turn() -> None:
    def fail() -> None:
        raise ValueError("this one")

    async def talk(turn_queue: TurnQueue, diary: list[str]) -> None:
        loop = asyncio.get_running_loop()
        reported: list[str] = []
        loop.set_exception_handler(lambda _, context: reported.append(str(context["exception"])))
        turn_queue.add(fail)
        turn_queue.add(partial(diary.append, "next"))
        assert await diary_after(2, diary) == ["|", "next", "|"]
        assert reported == ["this one"]

    play(talk)


def test_new_objects_are_collected_in_turns_of_their_own() -> None:
    async def talk(turn_queue: TurnQueue, diary: list[str]) -> None:
        for _ in range(2 * PIECES_PER_COLLECTION + 1):
            turn_queue.add(partial(diary.append, "piece"))
        some = ["piece", "|"] * PIECES_PER_COLLECTION
        pause = ["collected", "|"]
        expected = [*some, *pause, *some, *pause, "piece", "|"]
        assert await diary_after(len(expected) // 2, diary) == expected

    play(talk)


def test_a_coroutine_that_goes_by_the_time_lets_others_be_served_when_it_is_over() -> None:
    now, diary = 0.0, list[str]()

    async def main(_: SimLoop) -> None:
        nonlocal now
        others = asyncio.ensure_future(diary_after(3, diary))
        await asyncio.sleep(0)
        budget = TimeBudget(lambda: now)
        for seconds in (0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 9):
            now += seconds * SLICE_SECONDS
            diary.append("piece")
            await budget.step()
        await others

    run(main, seed=3)
    assert "".join(diary).replace("piece", "x") == "xxx|xxx|xx|", diary


@pytest.mark.parametrize(
    ("others", "expected"), [(0.0, "x|xx|xx|xx|xx|"), (0.35, "x|xxxx|xxxx|"), (9.0, "x|xxxxx|xxxxx|")]
)
def test_a_short_slice_is_as_long_as_the_rest_of_the_turn(others: float, expected: str) -> None:
    now, diary = 0.0, list[str]()

    async def serve_others() -> None:
        nonlocal now
        while True:
            now += others * SLICE_SECONDS
            diary.append("|")
            await asyncio.sleep(0)

    async def main(_: SimLoop) -> None:
        nonlocal now
        serving = asyncio.ensure_future(serve_others())
        budget = TimeBudget(lambda: now, least=0.15 * SLICE_SECONDS, items=5)
        now += 0.1 * SLICE_SECONDS  # before the first piece
        while len(diary) < len(expected):
            diary.append("x")
            now += 0.1 * SLICE_SECONDS
            await budget.step()
        serving.cancel()

    run(main, seed=3)
    assert "".join(diary)[: len(expected)] == expected
