"""What a request is charged with: its time while it is worked on, once, and not while it waits."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.protocol.apis import ApiKey
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.quotas.charge import Charge
from barnabas.server.quotas.client_quotas import ClientQuotas


class Desk:
    """Handles one request at a time by a clock that the test sets."""

    def __init__(self) -> None:
        self.clock = 0.0
        self.percents: list[float] = []
        self.sizes: list[float] = []
        self.muted: list[float] = []
        self.answers: list[Any] = []
        self.wait = 0.0
        self.quotas = ClientQuotas(BrokerConfig(), asyncio.get_running_loop(), lambda: self.clock)
        patch = pytest.MonkeyPatch()
        patch.setattr(self.quotas.request, "record", self._record)
        patch.setattr(self.quotas.produce, "record", self._produced)

    def _record(self, user: str, client_id: str, percent: float, now: float) -> float:
        self.percents.append(percent)
        return self.wait

    def _produced(self, user: str, client_id: str, size: float, now: float) -> float:
        self.sizes.append(size)
        return 0.0

    def context(self, api_key: int = ApiKey.METADATA) -> Any:
        return SimpleNamespace(api_key=api_key, mute=self.muted.append)

    def take(self, seconds: float) -> None:
        self.clock += seconds

    def charge(self, size: int = 77) -> Charge:
        return self.quotas.charge("ANONYMOUS", None, size)

    def settle(self, charge: Charge, response: Any, api_key: int = ApiKey.METADATA) -> None:
        charge.settling(lambda _, answer: self.answers.append(answer))(self.context(api_key), response)


async def test_a_handler_that_answers_is_charged_with_its_time() -> None:
    desk = Desk()
    charge = desk.charge()
    desk.take(0.1)
    assert charge.timing(lambda *_: desk.take(0.2))(desk.context(), None) is None
    desk.take(5.0)
    desk.settle(charge, SimpleNamespace())
    assert desk.percents == [pytest.approx(30.0)], "decoding counts, the wait after the handler does not"


async def test_a_coroutine_is_charged_with_its_turns() -> None:
    desk = Desk()
    charge = desk.charge()

    async def work() -> str:
        desk.take(0.1)
        for _ in range(3):
            asyncio.get_running_loop().call_soon(desk.take, 7.0)
            await asyncio.sleep(0)
            desk.take(0.1)
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 0.001)
        except TimeoutError:
            desk.take(0.1)
        return "done"

    answer = charge.timing(lambda *_: work())(desk.context(), None)
    desk.take(9.0)
    assert await answer == "done"
    desk.settle(charge, SimpleNamespace())
    assert desk.percents == [pytest.approx(50.0)]


async def test_a_cancelled_coroutine_hears_of_it() -> None:
    desk = Desk()
    heard: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            heard.append("the end")

    task = asyncio.ensure_future(desk.charge().timing(lambda *_: work())(desk.context(), None))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert heard == ["the end"]


async def test_a_fetch_is_charged_with_its_time_once() -> None:
    desk = Desk()
    charge = desk.charge()
    charge.timing(lambda *_: desk.take(0.2))(desk.context(), None)
    desk.take(3.0)
    charge.resume()
    desk.take(0.1)
    charge.fetched(1000)
    desk.settle(charge, SimpleNamespace(), ApiKey.FETCH)
    assert desk.percents == [pytest.approx(30.0)] and desk.sizes == []


async def test_what_is_produced_without_an_answer_is_charged_with_its_bytes_alone() -> None:
    desk = Desk()
    desk.settle(desk.charge(1234), None, ApiKey.PRODUCE)
    assert (desk.sizes, desk.percents, desk.answers) == ([1234], [], [None])


async def test_an_answer_tells_how_long_its_connection_is_muted() -> None:
    desk = Desk()
    desk.wait = 0.7504
    response = SimpleNamespace(throttle_time_ms=0)
    desk.settle(desk.charge(), response)
    assert (response.throttle_time_ms, desk.muted, desk.answers) == (750, [0.7504], [response])
    desk.wait = 0.0004
    other = SimpleNamespace(throttle_time_ms=0)
    desk.settle(desk.charge(), other)
    assert (other.throttle_time_ms, desk.muted) == (0, [0.7504]), "less than a millisecond is nothing"
