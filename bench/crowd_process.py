"""Many group members in a separate process, which runs at idle priority.

A thousand clients usually run on a thousand machines. In a bench they share two processors with the broker and with the
producer whose latency is measured. Their cost must not be mistaken for the cost of the broker.
"""

import asyncio
import multiprocessing
import os
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, Self

from bench.members import Crowd, GroupMember


class CrowdProcess:
    """A process of members that join, send heartbeats, and rejoin. As a context manager it ends the process."""

    def __init__(self, bootstrap: str, group_type: str = "classic") -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_live, args=(theirs, bootstrap, group_type), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.join()

    def add(self, group_ids: Sequence[str]) -> float:
        """Call `connect` and `join`."""
        self.connect(group_ids)
        return self.join()

    def connect(self, group_ids: Sequence[str]) -> None:
        """Connect one member for each group id. It finds its coordinator and waits for `join`."""
        self._ask("connect", group_ids)

    def join(self) -> float:
        """Let all connected members join together. Return the seconds until the last member had its assignment."""
        spent: float = self._ask("join")
        return spent

    def heartbeats(self) -> int:
        """Return the number of heartbeats so far."""
        count: int = self._ask("heartbeats")
        return count

    def rebalance(self, group_ids: Sequence[str]) -> None:
        """Rebalance the groups until `rest`: a new member per group id joins, all together, and they leave again."""
        self._ask("rebalance", group_ids)

    def rest(self) -> list[float]:
        """End the rebalances. Return the seconds of each rebalance until the last member had its assignment."""
        spent: list[float] = self._ask("rest")
        return spent

    def _ask(self, what: str, argument: object = None) -> Any:
        self._pipe.send((what, argument))
        answer = self._pipe.recv()
        if isinstance(answer, BaseException):
            raise answer
        return answer


def _live(pipe: Connection, bootstrap: str, group_type: str) -> None:
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    asyncio.run(_Puppets(bootstrap, group_type).obey(pipe))


class _Puppets:
    """The members and the commands for them, at the other end of the pipe."""

    def __init__(self, bootstrap: str, group_type: str) -> None:
        self._crowd = Crowd(bootstrap, group_type)
        self._rebalances: asyncio.Task[list[float]] | None = None
        self._is_enough = False

    async def obey(self, pipe: Connection) -> None:
        """Run commands until the other end has closed the pipe."""
        while True:
            try:
                what, argument = await asyncio.to_thread(pipe.recv)
            except EOFError:
                await self._crowd.close()
                return
            try:
                pipe.send(await getattr(self, what)(argument))
            except Exception as error:
                pipe.send(error)

    async def connect(self, group_ids: Sequence[str]) -> None:
        await self._crowd.connect(group_ids)

    async def join(self, _: object) -> float:
        begin = time.perf_counter()
        await self._crowd.join()
        return await self._crowd.settled(1) - begin

    async def heartbeats(self, _: object) -> int:
        return self._crowd.heartbeats

    async def rebalance(self, group_ids: Sequence[str]) -> None:
        newcomers = await self._crowd.come(group_ids)
        self._is_enough = False
        self._rebalances = asyncio.create_task(self._come_and_go(newcomers))

    async def rest(self, _: object) -> list[float]:
        assert self._rebalances is not None
        self._is_enough = True
        return await self._rebalances

    async def _come_and_go(self, newcomers: Sequence[GroupMember]) -> list[float]:
        spent: list[float] = []
        while not self._is_enough:
            for is_joining in (True, False):
                generations = {member: member.generation for member in self._crowd.members}
                begin = time.perf_counter()
                await asyncio.gather(*(one.join_again() if is_joining else one.leave() for one in newcomers))
                spent.append(await self._crowd.settled_after(generations) - begin)
        return spent
