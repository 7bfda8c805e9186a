"""What each request pays while somebody measures: compiled code and its twin, and which requests are timed in full."""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.native import native
from barnabas.server.apis.kafka_apis import Handle
from barnabas.server.apis.request_context import RequestContext
from barnabas.server.metrics.metered_calls import Calls, Limits, metered_here
from barnabas.server.metrics.request_meters import APART_SECONDS, RequestMeters

TWINS = [metered_here] if native is None else [metered_here, native.metered]
FLOOR, DUE = 5.0, 100.0


class Noted:
    """What becomes of calls that are metered."""

    def __init__(self, meter: Callable[[Calls], Handle]) -> None:
        self.now = 0.0
        self.limits, self.number = Limits(FLOOR), bytearray(8)
        self.limits.due = DUE
        self.seen: list[Any] = []
        calls = Calls(self._handle, lambda: self.now, self._timed, self._beyond, self.number, self.limits.memory)
        self._metered = meter(calls)

    def call(self, seconds: float, answer: Any, is_answered: bool) -> None:
        self.seen.append(self._metered(SimpleNamespace(is_answered=is_answered), (seconds, answer)))

    def _handle(self, context: Any, request: Any) -> Any:
        self.now += request[0]
        return request[1]

    def _timed(self, context: Any, request: Any) -> Any:
        self.limits.due = self.now + DUE
        self.now += request[0]
        return "timed"

    def _beyond(self, context: Any, request: Any, answer: Any, began: float, ended: float) -> None:
        self.seen.append((context.is_answered, request, answer, began, ended))


@given(st.lists(st.tuples(st.sampled_from([0.0, 4.0, 6.0, 50.0]), st.sampled_from([None, "answer"]), st.booleans())))
def test_both_note_the_same(calls: list[tuple[float, Any, bool]]) -> None:
    noted = [Noted(meter) for meter in TWINS]
    for one in noted:
        for call in calls:
            one.call(*call)
        assert int.from_bytes(one.number, sys.byteorder) == len(calls)
    assert all(one.seen == noted[0].seen for one in noted)


@pytest.mark.parametrize("meter", TWINS)
def test_only_what_is_not_answered_or_slow_is_looked_at(meter: Callable[[Calls], Handle]) -> None:
    noted = Noted(meter)
    noted.call(4.0, None, True)
    assert noted.seen == [None]
    noted.call(0.0, None, False)
    noted.call(6.0, None, True)
    noted.call(0.0, "answer", True)
    assert noted.seen[1:] == [
        (False, (0.0, None), None, 4.0, 4.0), None,
        (True, (6.0, None), None, 4.0, 10.0), None,
        (True, (0.0, "answer"), "answer", 10.0, 10.0), "answer",
    ]  # fmt: skip


@pytest.mark.parametrize("meter", TWINS)
@pytest.mark.parametrize("fails", ["handle", "clock", "timed", "beyond"])
def test_what_fails_is_raised_and_nothing_is_leaked(meter: Callable[[Calls], Handle], fails: str) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError(fails)

    parts: dict[str, Any] = {
        "handle": lambda *_: None,
        "clock": lambda: 1.0,
        "timed": lambda *_: None,
        "beyond": lambda *_: None,
    }
    limits = Limits(FLOOR)
    limits.due = DUE if fails != "timed" else 0.0
    handle = meter(Calls(**{**parts, fails: fail}, number=bytearray(8), limits=limits.memory))
    context, request = SimpleNamespace(is_answered=False), object()
    before = sys.getrefcount(context), sys.getrefcount(request), sys.getrefcount(None)
    for _ in range(1000):
        with pytest.raises(ValueError, match=fails):
            handle(context, request)
    after = sys.getrefcount(context), sys.getrefcount(request), sys.getrefcount(None)
    assert [abs(now - then) < 100 for now, then in zip(after, before, strict=True)] == [True] * 3


@pytest.mark.skipif(native is None, reason="there is no compiled code")
def test_compiled_code_takes_nothing_else() -> None:
    good = Calls(len, len, len, len, bytearray(8), bytearray(16))
    for wrong in (good[:5], [*good], good._replace(number=bytearray(7)), good._replace(limits=bytes(16)), None):
        with pytest.raises(TypeError):
            native.metered(wrong)
    with pytest.raises(TypeError):
        native.metered(good)(1)


@pytest.mark.skipif(native is None, reason="there is no compiled code")
def test_the_clock_of_compiled_code_is_read_without_a_call() -> None:
    seen: list[float] = []

    def beyond(_context: Any, _request: Any, _answer: Any, *when: float) -> None:
        seen.extend(when)

    limits = Limits(FLOOR)
    limits.due = inf
    handle = native.metered(Calls(lambda *_: None, native.stopwatch, len, beyond, bytearray(8), limits.memory))
    before = native.stopwatch()
    handle(SimpleNamespace(is_answered=False), None)
    began, ended = seen
    assert before <= began <= ended <= native.stopwatch()


def test_few_requests_are_all_timed_and_of_many_one_in_each_time() -> None:
    now = 100.0
    meters = RequestMeters(lambda: now, lambda _: None)

    def handle(context: RequestContext, request: Any) -> None:
        context.respond(request)

    handles = [meters.around(ApiKey.PRODUCE, version, handle, lambda *_: None)[0] for version in (3, 4)]

    def ask(version: int) -> None:
        channel = SimpleNamespace(is_handling=False)
        handles[version - 3](
            RequestContext(RequestHeader(ApiKey.PRODUCE, version, 7, None), channel, lambda *_: None), None
        )

    for _ in range(20):
        ask(3)
        now += 1.1 * APART_SECONDS
    assert (meters.requests, meters.times["Produce"].total.count) == ({("Produce", 3): 20, ("Produce", 4): 0}, 20)
    for _ in range(10):
        for _ in range(50):
            ask(3)
            ask(4)
        now += 1.1 * APART_SECONDS
    assert (meters.requests, meters.times["Produce"].total.count) == ({("Produce", 3): 520, ("Produce", 4): 500}, 30)
