"""Which single requests were slow: found among all, whoever was timed, and for some minutes."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.headers import RequestHeader
from barnabas.server.apis.request_context import RequestContext
from barnabas.server.metrics.request_meters import RequestMeters
from barnabas.server.metrics.slow_requests import KEPT, MINUTE, MINUTES, SlowRequest

SESSION = SimpleNamespace(principal=SimpleNamespace(name="User"), client_host="10.0.0.1")
SENDING = 0.5


class Referred(SimpleNamespace):
    """Can be referred to weakly."""


class Desk:
    """A handler that takes as long as it is told, by a clock that only it moves."""

    def __init__(self, key: ApiKey) -> None:
        self.now = 100.0
        self.meters = RequestMeters(lambda: self.now, lambda _: None)
        self.key = key
        self.measured, self.respond = self.meters.intercept(key, 3, self._handle, self._respond)

    def _handle(self, context: RequestContext, request: Any) -> Any:
        self.now += request.local
        if request.remote is None:
            context.respond(SimpleNamespace(error_code=0, responses=[]))

    def _respond(self, context: RequestContext, response: Any) -> None:
        self.now += SENDING

    def ask(self, local: float, remote: float | None = None, wait_ms: int = 0, client: str | None = "anna") -> None:
        """Answered by the handler, or so long after it."""
        channel = SimpleNamespace(session=SESSION)
        context = RequestContext(RequestHeader(self.key, 3, 7, client), channel, self.respond)
        self.handle(context, SimpleNamespace(local=local, remote=remote, max_wait_ms=wait_ms))
        if remote is not None:
            self.now += remote
            context.respond(SimpleNamespace(error_code=0, responses=[]))

    def handle(self, context: RequestContext, request: Any) -> None:
        """Ask in full."""
        self.measured(context, request)

    def slowest(self) -> list[SlowRequest]:
        """As they are told."""
        return [one for _, one in self.meters.slow.slowest()]


def test_each_that_was_slow_is_told_with_its_phases() -> None:
    desk = Desk(ApiKey.PRODUCE)
    for local in range(20):
        desk.ask(local)
    assert [one.slowness for one in desk.slowest()] == [n + SENDING for n in range(19, 19 - KEPT, -1)]
    desk.ask(1.0, remote=50.0, client="b" * 10_000)
    (first, *_) = desk.slowest()
    assert (first.local, first.remote, first.send, first.slowness) == (1.0, 50.0, SENDING, 51.5)
    assert (first.client_id, first.principal, first.host, first.version) == ("b" * 100, "User", "10.0.0.1", 3)
    for _ in range(8):
        desk.ask(100.0, client=None)
    assert {one.client_id for one in desk.slowest()} == {""}


@pytest.mark.parametrize(
    ("key", "remote", "wait_ms", "slowness"),
    [(ApiKey.FETCH, 30.0, 30_000, 0.5), (ApiKey.FETCH, 33.0, 30_000, 3.5), (ApiKey.JOIN_GROUP, 60.0, 0, 0.5)],
)
@pytest.mark.parametrize("before", [0, 1], ids=["timed", "not timed"])
def test_the_waiting_that_was_asked_for_is_not_slow(
    key: ApiKey, remote: float, wait_ms: int, slowness: float, before: int
) -> None:
    desk = Desk(key)
    for _ in range(before):
        desk.ask(-SENDING)
    desk.ask(0.0, remote, wait_ms)
    assert [one.slowness for one in desk.slowest()] == [pytest.approx(slowness)]


@pytest.mark.parametrize("before", [0, 1], ids=["timed", "not timed"])
@pytest.mark.parametrize("key", [ApiKey.FETCH, ApiKey.PRODUCE])
def test_a_request_is_not_kept_until_it_is_answered(key: ApiKey, before: int) -> None:
    """What waits for replicas would keep the records that it has brought."""
    desk = Desk(key)
    for _ in range(before):
        desk.ask(-SENDING)
    channel = SimpleNamespace(session=SESSION)
    context = RequestContext(RequestHeader(key, 3, 7, "anna"), channel, desk.respond)
    request = Referred(local=0.0, remote=1.0, max_wait_ms=500)
    kept = weakref.ref(request)
    desk.handle(context, request)
    del request
    assert kept() is None, "it is let go"
    desk.now += 1.0
    context.respond(SimpleNamespace(error_code=0, responses=[]))
    assert [one.remote for one in desk.slowest() if one.remote] == [1.0]


def test_what_was_slow_is_forgotten_after_some_minutes_and_little_is_kept() -> None:
    desk = Desk(ApiKey.PRODUCE)
    slow = desk.meters.slow
    slow.look_at_clock(0.0)
    for minute in range(20):
        for _ in range(50):
            desk.ask(100.0 - minute)
        assert len(slow.slowest()) <= KEPT * MINUTES
        assert min(one.slowness for _, one in slow.slowest()) == 100.5 - minute, "what was slower before hides nothing"
        slow.look_at_clock((minute + 1) * MINUTE)
    for minute in range(20, 20 + MINUTES - 1):
        assert slow.slowest()
        slow.look_at_clock((minute + 1) * MINUTE)
    assert slow.slowest() == []


def test_requests_that_are_handled_together_are_counted_and_the_slow_are_kept() -> None:
    desk = Desk(ApiKey.PRODUCE)
    meter = desk.meters.joint_meter(ApiKey.PRODUCE, 3)

    def contexts(count: int) -> Iterator[RequestContext]:
        for number in range(count):
            channel = SimpleNamespace(session=SESSION)
            yield RequestContext(RequestHeader(ApiKey.PRODUCE, 3, number, f"client {number}"), channel, desk.respond)

    desk.ask(0.0)
    meter.add(30, 100.0, 100.001, (100.001, 100.001), contexts(30))
    assert len(desk.slowest()) == 1, "only the single request was slow"
    meter.add(3, 200.0, 200.25, (201.25, 201.5), contexts(2))
    assert desk.meters.requests == {("Produce", 3): 34}
    first, second, *_ = desk.slowest()
    assert {first.client_id, second.client_id} == {"client 0", "client 1"}
    assert (first.local, first.remote, first.send) == (0.25, 1.0, 0.25)
    total = desk.meters.times["Produce"].total
    assert (total.count, total.total) == (2, SENDING + 33 * 1.5), "a timed request counts for those before it"
    desk.ask(0.0)
    assert desk.meters.requests == {("Produce", 3): 35}
    assert (total.count, total.total) == (2, SENDING + 33 * 1.5), "the last was timed a moment ago"
