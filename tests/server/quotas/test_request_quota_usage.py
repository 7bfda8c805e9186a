"""What a request is charged with: its time while it is worked on, once, and not while it waits."""

from __future__ import annotations

import asyncio
from types import CoroutineType, SimpleNamespace
from typing import Any

import pytest

from barnabas.protocol.apis import ApiKey
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.quotas.quota_managers import QuotaManagers
from barnabas.server.quotas.request_quota_usage import CONTROLLER_MUTATION, REQUEST, RequestQuotaUsage


class Desk:
    """Handles one request at a time by a clock that the test sets."""

    def __init__(self) -> None:
        self.clock = 0.0
        self.percents: list[float] = []
        self.sizes: list[float] = []
        self.muted: list[float] = []
        self.answers: list[Any] = []
        self.wait = 0.0
        self.quotas = QuotaManagers(BrokerConfig(), asyncio.get_running_loop(), lambda: self.clock)
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

    def quota_usage(self, size: int = 77) -> RequestQuotaUsage:
        return RequestQuotaUsage(self.quotas, "ANONYMOUS", "", size)

    def handle(self, quota_usage: RequestQuotaUsage, handler: Any) -> Any:
        """Handle the request as the interceptor for quotas does."""
        try:
            work = handler()
        finally:
            quota_usage.pause()
        return quota_usage.timed(work) if isinstance(work, CoroutineType) else work

    def settle(self, quota_usage: RequestQuotaUsage, response: Any, api_key: int = ApiKey.METADATA) -> None:
        quota_usage.settle_response(self.context(api_key), response)
        self.answers.append(response)


async def test_a_handler_that_answers_is_charged_with_its_time() -> None:
    desk = Desk()
    quota_usage = desk.quota_usage()
    desk.take(0.1)
    assert desk.handle(quota_usage, lambda: desk.take(0.2)) is None
    desk.take(5.0)
    desk.settle(quota_usage, SimpleNamespace())
    assert desk.percents == [pytest.approx(30.0)], "decoding counts, the wait after the handler does not"


async def test_a_coroutine_is_charged_with_its_turns() -> None:
    desk = Desk()
    quota_usage = desk.quota_usage()

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

    answer = desk.handle(quota_usage, work)
    desk.take(9.0)
    assert await answer == "done"
    desk.settle(quota_usage, SimpleNamespace())
    assert desk.percents == [pytest.approx(50.0)]


async def test_a_cancelled_coroutine_hears_of_it() -> None:
    desk = Desk()
    heard: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            heard.append("the end")

    task = asyncio.ensure_future(desk.handle(desk.quota_usage(), work))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert heard == ["the end"]


async def test_a_fetch_is_charged_with_its_time_once() -> None:
    desk = Desk()
    quota_usage = desk.quota_usage()
    desk.handle(quota_usage, lambda: desk.take(0.2))
    desk.take(3.0)
    quota_usage.resume()
    desk.take(0.1)
    quota_usage.record_fetch(1000)
    desk.settle(quota_usage, SimpleNamespace(), ApiKey.FETCH)
    assert desk.percents == [pytest.approx(30.0)] and desk.sizes == []


async def test_what_is_produced_without_an_answer_is_charged_with_its_bytes_alone() -> None:
    desk = Desk()
    desk.settle(desk.quota_usage(1234), None, ApiKey.PRODUCE)
    assert (desk.sizes, desk.percents, desk.answers) == ([1234], [], [None])


async def test_an_answer_tells_how_long_its_connection_is_muted() -> None:
    desk = Desk()
    desk.wait = 0.7504
    response = SimpleNamespace(throttle_time_ms=0)
    desk.settle(desk.quota_usage(), response)
    assert (response.throttle_time_ms, desk.muted, desk.answers) == (750, [0.7504], [response])
    desk.wait = 0.0004
    other = SimpleNamespace(throttle_time_ms=0)
    desk.settle(desk.quota_usage(), other)
    assert (other.throttle_time_ms, desk.muted) == (0, [0.7504]), "less than a millisecond is nothing"


@pytest.mark.parametrize(("own", "of_controller"), [(0.25, 2.0), (3.0, 2.0), (0.0, 2.0)])
async def test_the_longer_throttle_time_of_controller_and_broker_counts(own: float, of_controller: float) -> None:
    desk = Desk()
    desk.wait = own
    quota_usage = desk.quota_usage()
    quota_usage.throttle(of_controller)
    response = SimpleNamespace(throttle_time_ms=round(of_controller * 1000))
    desk.settle(quota_usage, response)
    assert desk.muted == [max(own, of_controller)]
    assert response.throttle_time_ms == round(max(own, of_controller) * 1000)
    cause = REQUEST if own > of_controller else CONTROLLER_MUTATION
    assert {name: count for name, count in desk.quotas.throttled_requests.items() if count} == {cause: 1}


async def test_a_request_that_is_handled_together_with_others_is_charged_with_its_share() -> None:
    desk = Desk()
    desk.take(3.0)
    quota_usage = desk.quota_usage()
    desk.take(1.0)
    quota_usage.spend(0.25)
    desk.take(5.0)
    desk.settle(quota_usage, SimpleNamespace(), ApiKey.PRODUCE)
    assert desk.percents == [pytest.approx(25.0)]
    assert desk.sizes == [77]
