"""Whether a coordinator is still the one: one record for all who ask meanwhile, none where nobody else could be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.server.coordinator.coordinator_log import CoordinatorLog, CoordinatorRecord, ResponseCallback
from barnabas.server.coordinator.leadership_barrier import LeadershipBarrier

MARK = (b"mark", None)


class Log:
    """Keeps the appends, to be decided by the test."""

    def __init__(self) -> None:
        self.followers: Any = SimpleNamespace(other_electable_replicas={2})
        self.is_led = True
        self.open: list[ResponseCallback] = []
        self.appended: list[list[CoordinatorRecord]] = []
        self.refused: ErrorCode | None = None

    def get_leader_partition(self, index: int) -> Any:
        return SimpleNamespace(followers=self.followers) if self.is_led else None

    def append(
        self, index: int, entries: Iterable[CoordinatorRecord], done: ResponseCallback, *, timeout_ms: int
    ) -> bool:
        self.appended.append(list(entries))
        if self.refused is None:
            self.open.append(done)
        else:
            done(self.refused)
        return self.refused is None


def confirmations(log: Log) -> LeadershipBarrier:
    return LeadershipBarrier(cast(CoordinatorLog, log), asyncio.get_running_loop(), MARK, lambda: 1000)


async def asking(what: LeadershipBarrier, times: int) -> list[asyncio.Task[bool]]:
    tasks = [asyncio.ensure_future(what.confirm_leadership(0)) for _ in range(times)]
    await asyncio.sleep(0)
    return tasks


async def test_all_who_ask_meanwhile_share_the_next_record() -> None:
    log = Log()
    what = confirmations(log)
    first, *others = await asking(what, 10)
    assert log.appended == [[MARK]]
    log.open.pop()(ErrorCode.NONE)
    assert await first
    assert len(log.appended) == 2, "what was on its way when they asked proves nothing"
    assert not any(one.done() for one in others)
    late = await asking(what, 1)
    log.open.pop()(ErrorCode.NONE)
    assert all(await asyncio.gather(*others))
    log.open.pop()(ErrorCode.NONE)
    assert await late[0]
    assert len(log.appended) == 3


@pytest.mark.parametrize("outcome", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT])
async def test_who_cannot_be_sure_says_so_to_all(outcome: ErrorCode) -> None:
    log = Log()
    what = confirmations(log)
    tasks = await asking(what, 3)
    log.open.pop()(outcome)
    assert await asyncio.gather(*tasks) == [False] * 3
    log.refused = ErrorCode.NOT_ENOUGH_REPLICAS
    assert not await what.confirm_leadership(0)
    log.refused = None
    (again,) = await asking(what, 1)
    log.open.pop()(ErrorCode.NONE)
    assert await again


async def test_who_leaves_takes_nobody_along() -> None:
    log = Log()
    first, second, third = await asking(confirmations(log), 3)
    first.cancel()
    second.cancel()
    await asyncio.sleep(0)
    log.open.pop()(ErrorCode.NONE)
    log.open.pop()(ErrorCode.NONE)
    assert await third


@pytest.mark.parametrize("others", [None, SimpleNamespace(other_electable_replicas=set())])
async def test_it_costs_nothing_where_nobody_else_may_lead(others: Any) -> None:
    log = Log()
    log.followers = others
    assert await confirmations(log).confirm_leadership(0)
    log.is_led = False
    assert not await confirmations(log).confirm_leadership(0)
    assert log.appended == []
