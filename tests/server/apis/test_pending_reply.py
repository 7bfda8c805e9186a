"""A handler that waits for a coordinator: in a task, and without one."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from barnabas.server.apis.pending_reply import PendingReply


async def waiting(reply: PendingReply[int]) -> int:
    return await reply + 1


def test_a_task_waits_for_the_reply() -> None:
    async def play() -> int:
        reply = PendingReply[int]()
        task = asyncio.create_task(waiting(reply))
        await asyncio.sleep(0)
        reply(1)
        return await task

    assert asyncio.run(play()) == 2


def test_a_reply_after_the_handler_was_cancelled_is_dropped() -> None:
    async def play() -> bool:
        reply = PendingReply[int]()
        task = asyncio.create_task(waiting(reply))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        reply(1)
        return task.cancelled()

    assert asyncio.run(play())


def in_callback(work: Coroutine[Any, Any, int]) -> object:
    """The first value that the coroutine yields where no task runs."""
    loop = asyncio.new_event_loop()
    try:
        found: list[object] = []
        loop.call_soon(lambda: found.append(work.send(None)))
        loop.call_soon(loop.stop)
        loop.run_forever()
        return found[0]
    finally:
        loop.close()


def test_without_a_task_the_handler_goes_on_in_the_call_of_the_coordinator() -> None:
    reply, results = PendingReply[int](), list[int]()
    work = waiting(reply)
    assert in_callback(work) is reply

    def resume() -> None:
        with pytest.raises(StopIteration) as end:
            work.send(None)
        results.append(end.value.value)

    reply.when_done(resume)
    assert results == []
    reply(1)
    assert results == [2]


def test_a_reply_that_has_come_needs_no_wait() -> None:
    reply = PendingReply[int]()
    reply(1)
    with pytest.raises(StopIteration) as end:
        waiting(reply).send(None)
    assert end.value.value == 2
