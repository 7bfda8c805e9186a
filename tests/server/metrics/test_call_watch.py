"""What each request pays while somebody measures: compiled code and its twin, and which requests are timed in full."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.native import native
from barnabas.server.apis.request_context import RequestContext
from barnabas.server.metrics.call_watch import CallTimes, watch, watch_py
from barnabas.server.metrics.readings import Readings
from barnabas.server.metrics.request_meters import APART_SECONDS, RequestMeters, Times

needs_compiled_code = pytest.mark.skipif(native is None, reason="there is no compiled code")


@given(st.lists(st.tuples(st.sampled_from([0.0, 4.0, 6.0, 50.0]), st.booleans())))
def test_calls_are_counted_and_slow_ones_told_and_those_that_are_due(calls: list[tuple[float, bool]]) -> None:
    now, count, watched = 100.0, bytearray(8), CallTimes(5.0)
    begin, is_slow = watch_py(lambda: now, count, watched)
    for seconds, is_due in calls:
        watched.due = now if is_due else now + 0.1
        assert begin() is is_due
        began = now
        now += seconds
        assert is_slow() is (seconds > 5.0)
        assert watched.last == (began, now)
    assert int.from_bytes(count, sys.byteorder) == len(calls)


@needs_compiled_code
def test_compiled_code_says_the_same_by_its_clock() -> None:
    count, watched = bytearray(8), CallTimes(3600.0)
    begin, is_slow = watch(native.stopwatch, count, watched)
    assert type(begin) is type(native.stopwatch)
    watched.due = native.stopwatch() + 3600.0
    assert begin() is False
    watched.due = native.stopwatch() - 1.0
    assert begin() is True
    assert is_slow() is False
    assert int.from_bytes(count, sys.byteorder) == 2


@needs_compiled_code
def test_compiled_code_tells_how_long_a_call_took_that_saw_a_tick() -> None:
    watched = CallTimes(0.0)
    begin, is_slow = watch(native.stopwatch, bytearray(8), watched)
    began = native.stopwatch()
    begin()
    while native.stopwatch() - began < 4 * watched.tick + 0.001:
        assert watched.last is None
    assert is_slow() is True
    took = native.stopwatch() - began
    assert watched.last is not None
    told = watched.last[1] - watched.last[0]
    assert 3 * watched.tick <= told <= took + 1.0, "a machine with much to do may tick late"


@needs_compiled_code
def test_compiled_code_takes_nothing_else() -> None:
    for wrong in ((), (bytearray(8),), (bytearray(7), bytearray(40)), (bytearray(8), bytes(40)), (None, None)):
        with pytest.raises(TypeError):
            native.watch(*wrong)


def test_few_requests_are_all_timed_and_of_many_one_in_each_time() -> None:
    now = 100.0
    meters = RequestMeters(lambda: now, lambda _: None)

    def handle(context: RequestContext, request: Any) -> None:
        context.respond(request)

    by_version = {version: meters.intercept(ApiKey.PRODUCE, version, handle, lambda *_: None)[0] for version in (3, 4)}

    def ask(version: int) -> None:
        channel = SimpleNamespace()
        header = RequestHeader(ApiKey.PRODUCE, version, 7, None)
        by_version[version](RequestContext(header, channel, lambda *_: None), None)

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


def test_the_sum_of_times_never_goes_back() -> None:
    now = 100.0
    meters = RequestMeters(lambda: now, lambda _: None)

    def handle(context: RequestContext, took: float) -> None:
        nonlocal now
        now += took
        context.respond(took)

    measured, _ = meters.intercept(ApiKey.PRODUCE, 3, handle, lambda *_: None)

    def ask(took: float) -> None:
        header = RequestHeader(ApiKey.PRODUCE, 3, 7, None)
        measured(RequestContext(header, SimpleNamespace(), lambda *_: None), took)

    def told() -> tuple[float, float]:
        found = Readings(cast(Any, SimpleNamespace()), meters, Times(), Times())._of_requests()
        local = {part: value for family, part, _, value in found if family.endswith("_localtimems")}
        return local["_count"], local["_sum"]

    for _ in range(20):  # one of ten is timed
        for took in [0.002] + [0.0] * 9:
            ask(took)
        now += APART_SECONDS
    count, busy = told()
    assert count == 200
    assert busy == pytest.approx(2.0 * (1 + 19 * 10))  # each stands for those behind the one before
    for _ in range(20):  # all are timed, and take no time
        now += 2 * APART_SECONDS
        ask(0.0)
    assert told() == (220, busy)
