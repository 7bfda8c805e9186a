"""A delayed operation completes exactly once, by its condition or by its deadline, and leaves nothing behind."""

from __future__ import annotations

import asyncio

from barnabas.server.replication.delayed_operation import DelayedOperation, Purgatory


class Waiting(DelayedOperation):
    def __init__(self) -> None:
        super().__init__()
        self.ready = False
        self.events: list[str] = []
        self.done = asyncio.Event()

    def try_complete(self) -> bool:
        return self.ready and self.force_complete()

    def on_expiration(self) -> None:
        self.events.append("expired")

    def on_complete(self) -> None:
        self.events.append("completed")
        self.done.set()


async def test_the_condition_completes_it_once() -> None:
    purgatory = Purgatory("test", asyncio.get_running_loop())
    operation = Waiting()
    purgatory.watch(operation, ["a", "b"], timeout_ms=60_000)
    assert purgatory.check("a") == 0
    operation.ready = True
    assert purgatory.check("b") == 1
    assert purgatory.check("a") == 0
    assert operation.events == ["completed"]
    assert len(purgatory) == 0
    assert not operation.force_complete()


async def test_the_deadline_completes_it() -> None:
    purgatory = Purgatory("test", asyncio.get_running_loop())
    operation = Waiting()
    purgatory.watch(operation, ["a"], timeout_ms=1)
    await asyncio.wait_for(operation.done.wait(), 60)
    assert operation.events == ["expired", "completed"]
    assert len(purgatory) == 0


async def test_cancelling_answers_nobody() -> None:
    purgatory = Purgatory("test", asyncio.get_running_loop())
    operation = Waiting()
    purgatory.watch(operation, ["a"], timeout_ms=60_000)
    operation.cancel()
    operation.ready = True
    assert purgatory.check("a") == 0
    assert operation.events == []
    assert len(purgatory) == 0


async def test_shutdown_answers_everyone() -> None:
    purgatory = Purgatory("test", asyncio.get_running_loop())
    waiting = [Waiting(), Waiting()]
    for operation in waiting:
        purgatory.watch(operation, ["a"], timeout_ms=60_000)
    purgatory.complete_all()
    assert [operation.events for operation in waiting] == [["expired", "completed"]] * 2
