"""Group members in a separate process, which runs at idle priority.

A thousand clients usually run on a thousand machines. In a bench they share two processors with the broker and with the
producer whose latency is measured. Their cost must not be attributed to the broker.
"""

import asyncio
import multiprocessing
import os
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, Self

from bench.members import GroupMember, MemberPool


class MemberProcess:
    """A process whose members join, send heartbeats and rejoin. Leaving the context ends the process."""

    def __init__(self, bootstrap: str, group_type: str = "classic") -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, child_end = context.Pipe()
        self._process = context.Process(target=_run_members, args=(child_end, bootstrap, group_type), daemon=True)
        self._process.start()
        child_end.close()

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
        self._call("connect", group_ids)

    def join(self) -> float:
        """Let all connected members join together. Return the seconds until the last member had its assignment."""
        spent: float = self._call("join")
        return spent

    def heartbeats(self) -> int:
        """Return the number of heartbeats so far."""
        count: int = self._call("heartbeats")
        return count

    def rebalance(self, group_ids: Sequence[str]) -> None:
        """Let a new member per group id join and leave, all of them together, until `stop_rebalances` is called."""
        self._call("rebalance", group_ids)

    def stop_rebalances(self) -> list[float]:
        """End the rebalances. Return the seconds of each rebalance until the last member had its assignment."""
        spent: list[float] = self._call("stop_rebalances")
        return spent

    def _call(self, command: str, argument: object = None) -> Any:
        self._pipe.send((command, argument))
        result = self._pipe.recv()
        if isinstance(result, BaseException):
            raise result
        return result


def _run_members(pipe: Connection, bootstrap: str, group_type: str) -> None:
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    asyncio.run(_MemberCommands(bootstrap, group_type).run(pipe))


class _MemberCommands:
    """The commands of a `MemberProcess`, which its child process runs on a pool of members."""

    def __init__(self, bootstrap: str, group_type: str) -> None:
        self._pool = MemberPool(bootstrap, group_type)
        self._rebalances: asyncio.Task[list[float]] | None = None
        self._is_stopping = False

    async def run(self, pipe: Connection) -> None:
        """Run commands until the other end has closed the pipe."""
        while True:
            try:
                command, argument = await asyncio.to_thread(pipe.recv)
            except EOFError:
                await self._pool.close()
                return
            try:
                pipe.send(await getattr(self, command)(argument))
            except Exception as error:
                pipe.send(error)

    async def connect(self, group_ids: Sequence[str]) -> None:
        await self._pool.connect(group_ids)

    async def join(self, _: object) -> float:
        begin = time.perf_counter()
        await self._pool.join()
        return await self._pool.wait_for_assignments(1) - begin

    async def heartbeats(self, _: object) -> int:
        return self._pool.heartbeats

    async def rebalance(self, group_ids: Sequence[str]) -> None:
        newcomers = await self._pool.open_members(group_ids)
        self._is_stopping = False
        self._rebalances = asyncio.create_task(self._join_and_leave(newcomers))

    async def stop_rebalances(self, _: object) -> list[float]:
        assert self._rebalances is not None
        self._is_stopping = True
        return await self._rebalances

    async def _join_and_leave(self, newcomers: Sequence[GroupMember]) -> list[float]:
        spent: list[float] = []
        while not self._is_stopping:
            for is_joining in (True, False):
                generations = {member: member.generation for member in self._pool.members}
                begin = time.perf_counter()
                await asyncio.gather(*(one.rejoin() if is_joining else one.leave() for one in newcomers))
                spent.append(await self._pool.wait_for_newer_assignments(generations) - begin)
        return spent
