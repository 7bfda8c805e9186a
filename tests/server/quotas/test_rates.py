"""Rates and token buckets over time, and what is forgotten."""

from __future__ import annotations

import pytest

from barnabas.server.quotas.rates import InUse, QuotaWindow, SampledRate, TokenBucket

KAFKAS = QuotaWindow(11, 1)


def test_a_rate_that_has_just_begun_is_taken_over_the_complete_windows() -> None:
    rate = SampledRate(KAFKAS)
    rate.record(1000.0, 50.0)
    assert rate.measure(50.0) == (100.0, 10.0)
    assert rate.measure(50.5) == (pytest.approx(1000 / 10.5), 10.5)


def test_a_steady_use_is_its_own_rate() -> None:
    rate = SampledRate(KAFKAS)
    for tick in range(400):
        rate.record(25.0, 3.0 + tick / 4)
    assert rate.measure(3.0 + 399 / 4)[0] == pytest.approx(100.0, rel=0.03)


def test_a_use_counts_no_more_once_its_window_is_out_of_reach() -> None:
    rate = SampledRate(QuotaWindow(3, 2))
    rate.record(60.0, 10.0)
    assert rate.measure(15.9)[0] > 0
    assert rate.measure(16.0) == (0.0, 4.0)


def test_a_window_that_reaches_into_the_measured_time_with_its_end_is_measured() -> None:
    rate = SampledRate(QuotaWindow(2, 1))
    rate.record(5.0, 0.0)
    rate.record(5.0, 0.9)
    assert rate.measure(2.5) == (pytest.approx(4.0), 2.5)
    assert rate.measure(2.9) == (0.0, 1.0)


def test_the_excess_is_the_time_without_use_that_brings_the_rate_down_to_its_limit() -> None:
    rate = SampledRate(KAFKAS)
    rate.record(1500.0, 0.0)
    assert rate.excess(100.0, 0.0) == pytest.approx(5.0)
    assert 1500.0 / (10.0 + rate.excess(100.0, 0.0)) == pytest.approx(100.0)
    assert rate.excess(150.0, 0.0) == 0.0


def test_what_is_taken_back_was_not_used() -> None:
    rate = SampledRate(KAFKAS)
    rate.record(1500.0, 0.0)
    rate.record(-1500.0, 0.0)
    assert rate.measure(0.0)[0] == 0.0


def test_a_long_pause_leaves_no_trace() -> None:
    rate = SampledRate(KAFKAS)
    for second in range(30):
        rate.record(100.0, float(second))
    rate.record(10.0, 1000.0)
    assert rate.measure(1000.0) == (1.0, 10.0)


def test_a_bucket_begins_full_lets_overdraw_once_and_fills_at_its_limit() -> None:
    bucket = TokenBucket(KAFKAS)
    assert bucket.debt(2.0, 100.0) == 0.0
    bucket.take(22.0, 2.0, 100.0)
    assert bucket.debt(2.0, 100.0) == 0.0, "the burst is samples * seconds * limit"
    bucket.take(6.0, 2.0, 100.0)
    assert bucket.debt(2.0, 100.0) == pytest.approx(3.0)
    assert bucket.debt(2.0, 102.0) == pytest.approx(1.0)
    assert bucket.debt(2.0, 103.0) == 0.0
    bucket.take(23.0, 2.0, 1000.0)
    assert bucket.debt(2.0, 1000.0) == pytest.approx(0.5), "it is never fuller than full"


def test_what_is_idle_is_forgotten_when_something_new_comes() -> None:
    rates = InUse(lambda: SampledRate(KAFKAS), KAFKAS.reach)
    for number in range(1000):
        rates.get(number, 20.0).record(1.0, 20.0)
    rates.get("busy", 20.0).record(1.0, 25.0)
    assert len(rates) == 1001
    rates.get("new", 33.0)
    assert len(rates) == 2
    assert rates.get("busy", 33.0).measure(33.0)[0] > 0
