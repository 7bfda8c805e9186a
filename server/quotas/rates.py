"""Sampled rates and token buckets (Kafka's Rate, TokenBucket and QuotaUtils).

All times are seconds of one monotonic clock.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Protocol, TypeVar

MIN_SECONDS = 0.001
"""The shortest time over which a rate is measured."""
BUCKET_IDLE_SECONDS = 3600.0
"""A bucket without changes for this time is full again."""
MAX_UNTHROTTLED_SENSORS = 10_000
"""Sensors within their limits that are kept: a client may send a new client id with each request."""


@dataclass(frozen=True, slots=True)
class QuotaWindow:
    """The number and the length of samples (quota.window.num, quota.window.size.seconds)."""

    samples: int
    seconds: float

    @property
    def reach(self) -> float:
        """Seconds after which a value does not count any more."""
        return self.samples * self.seconds

    @property
    def complete(self) -> float:
        """Seconds of all complete samples."""
        return (self.samples - 1) * self.seconds


@dataclass(slots=True)
class _Sample:
    start: float
    last: float
    value: float = 0.0


class SampledRate:
    """The rate per second over the last samples and the current one (Kafka's Rate)."""

    __slots__ = ("_limit", "_samples", "_window")

    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        # One more than is measured: the end of the oldest may be within the measured time.
        self._samples: deque[_Sample] = deque(maxlen=window.samples + 1)
        self._limit = math.inf

    def record(self, value: float, now: float) -> None:
        """Record a value; a negative value corrects an earlier one."""
        if not self._samples or now - self._samples[-1].start >= self._window.seconds:
            self._samples.append(_Sample(now, now))
        sample = self._samples[-1]
        sample.value += value
        sample.last = now

    def measure(self, now: float) -> tuple[float, float]:
        """Return the rate per second, and the measured seconds: at least the time of the complete samples."""
        samples, window = self._samples, self._window
        while samples and now - samples[0].last >= window.reach:
            samples.popleft()
        elapsed = now - samples[0].start if samples else 0.0
        # A new rate is measured as if all earlier samples were 0.
        elapsed += max(0, window.samples - 1 - int(elapsed / window.seconds)) * window.seconds
        elapsed = max(elapsed, MIN_SECONDS)
        return sum(sample.value for sample in samples) / elapsed, elapsed

    def excess(self, limit: float, now: float) -> float:
        """Return the seconds without values after which the rate equals its limit; 0 if it is not above.

        They are infinite for a limit of 0.
        """
        self._limit = limit
        rate, elapsed = self.measure(now)
        if rate <= limit:
            return 0.0
        return (rate - limit) / limit * elapsed if limit > 0 else math.inf

    def has_expired(self, now: float) -> bool:
        """Return whether no sample counts any more."""
        return not self._samples or now - self._samples[-1].last >= self._window.reach

    def is_over_limit(self, now: float) -> bool:
        """Return whether the rate is above the limit of the last `excess`."""
        return self.measure(now)[0] > self._limit


class TokenBucket:
    """Tokens that are added at the limit's rate, up to the number of a whole window (KIP-599). It begins full."""

    __slots__ = ("_filled_at", "_limit", "_tokens", "_window")

    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        self._tokens = math.inf
        self._limit = 0.0
        self._filled_at = 0.0

    def debt(self, limit: float, now: float) -> float:
        """Return the seconds until the number of tokens is not negative, 0 if it is not."""
        self._fill(limit, now)
        return max(0.0, -self._tokens / limit)

    def take(self, tokens: float, limit: float, now: float) -> None:
        """Take tokens; their number may become negative."""
        self._fill(limit, now)
        self._tokens -= tokens

    def has_expired(self, now: float) -> bool:
        """Return whether it is full again, or idle for `BUCKET_IDLE_SECONDS`."""
        full = self._window.reach * self._limit
        return now - self._filled_at >= BUCKET_IDLE_SECONDS or self._filled(self._limit, now) >= full

    def is_over_limit(self, now: float) -> bool:
        """Return whether the number of tokens is negative at the last limit."""
        return self._filled(self._limit, now) < 0

    def _fill(self, limit: float, now: float) -> None:
        self._tokens = min(self._window.reach * limit, self._filled(limit, now))
        self._limit = limit
        self._filled_at = now

    def _filled(self, limit: float, now: float) -> float:
        return self._tokens + limit * (now - self._filled_at)


class Sensor(Protocol):
    """A measurement of one owner's use: a `SampledRate` or a `TokenBucket`."""

    def has_expired(self, now: float) -> bool:
        """Return whether it equals a new sensor."""

    def is_over_limit(self, now: float) -> bool:
        """Return whether its owner is throttled."""


T = TypeVar("T", bound=Sensor)


class SensorRegistry(Generic[T]):
    """The sensors of one quota by owner, in the order of their last use.

    Sensors that have expired are dropped, and beyond `MAX_UNTHROTTLED_SENSORS` the least recently used ones. Sensors
    over their limit are kept: each costs its client a throttled connection or changed partitions, which bounds them.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._kept: OrderedDict[Hashable, T] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, owner: Hashable, now: float) -> T:
        """Return the sensor of an owner, a new one if there is none."""
        kept = self._kept.get(owner)
        if kept is None:
            self._expire(now)
            kept = self._kept[owner] = self._make()
        else:
            self._kept.move_to_end(owner)
        return kept

    def _expire(self, now: float) -> None:
        """Check the two oldest sensors: one more than is added, so that their number falls without a long pass."""
        for owner, oldest in list(islice(self._kept.items(), 2)):
            is_over_limit = oldest.is_over_limit(now)
            if oldest.has_expired(now) or (len(self._kept) >= MAX_UNTHROTTLED_SENSORS and not is_over_limit):
                del self._kept[owner]
            elif is_over_limit:
                self._kept.move_to_end(owner)
