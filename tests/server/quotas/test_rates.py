"""Rates and token buckets over time, and what is forgotten."""

from __future__ import annotations

import pytest

from barnabas.server.quotas.rates import MAX_UNTHROTTLED_SENSORS, QuotaWindow, SampledRate, SensorRegistry, TokenBucket

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


def test_what_is_as_good_as_new_is_forgotten_when_something_new_comes() -> None:
    rates = SensorRegistry(lambda: SampledRate(KAFKAS))
    for number in range(1000):
        rates.get(number, 20.0).record(1.0, 20.0)
    rates.get(0, 20.0).record(1.0, 25.0)
    for number in range(500):
        rates.get(("too early", number), 30.9).record(1.0, 30.9)
    assert len(rates) == 1500
    for number in range(500):
        rates.get(("new", number), 31.0).record(1.0, 31.0)
    assert len(rates) == 1001, "two go for each that comes"
    assert rates.get(0, 31.0).measure(31.0)[0] > 0


def test_a_bucket_is_as_good_as_new_once_it_is_full_or_an_hour_idle() -> None:
    buckets = SensorRegistry(lambda: TokenBucket(KAFKAS))
    buckets.get("little", 100.0).take(4.0, 2.0, 100.0)
    assert not buckets.get("little", 101.9).has_expired(101.9)
    assert buckets.get("little", 102.0).has_expired(102.0)
    buckets.get("much", 100.0).take(1e6, 2.0, 100.0)
    assert len(buckets) == 2
    buckets.get("new", 3699.9).take(1.0, 2.0, 3699.9)
    assert len(buckets) == 2 and buckets.get("much", 3699.9).is_over_limit(3699.9)
    buckets.get("newer", 3700.0).take(1.0, 2.0, 3700.0)
    assert len(buckets) == 2 and not buckets.get("much", 3700.0).is_over_limit(3700.0), "as Kafka forgets it"


@pytest.mark.parametrize("make", [SampledRate, TokenBucket])
def test_a_hundred_thousand_names_are_not_all_kept_but_who_owes_is(make: type[SampledRate | TokenBucket]) -> None:
    kept: SensorRegistry[SampledRate | TokenBucket] = SensorRegistry(lambda: make(KAFKAS))

    def use(owner: str, amount: float) -> None:
        used = kept.get(owner, 100.0)
        if isinstance(used, SampledRate):
            used.record(amount, 100.0)
            used.excess(2.0, 100.0)
        else:
            used.take(amount, 2.0, 100.0)

    debtors = [f"debtor {number}" for number in range(100)]
    for number in range(100_000):
        if number % 1000 == 0:
            use(debtors[number // 1000], 30.0)
        use(f"name {number}", 1.0)
        if number % 5000 == 0:
            use("regular", 0.01)
    assert len(kept) == MAX_UNTHROTTLED_SENSORS
    assert all(kept.get(debtor, 100.0).is_over_limit(100.0) for debtor in debtors)
    assert not kept.get("regular", 100.0).has_expired(100.0), "who comes again is not the oldest"
    assert len(kept) == MAX_UNTHROTTLED_SENSORS, "all of them were there"
