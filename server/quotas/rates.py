"""How use is measured: sampled rates and token buckets (Kafka's Rate, TokenBucket and QuotaUtils).

All times are seconds of one clock that never goes back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

LEAST_SECONDS = 0.001
"""A rate over less time than this is taken over this."""


@dataclass(frozen=True, slots=True)
class QuotaWindow:
    """Over how many samples of how many seconds use is measured (quota.window.num, quota.window.size.seconds)."""

    samples: int
    seconds: float

    @property
    def reach(self) -> float:
        """Seconds after which a use counts no more."""
        return self.samples * self.seconds

    @property
    def complete(self) -> float:
        """Seconds of the samples that are over."""
        return (self.samples - 1) * self.seconds


@dataclass(slots=True)
class _Sample:
    start: float
    last: float
    value: float = 0.0


class SampledRate:
    """Use per second over the last samples, the present one included."""

    __slots__ = ("_samples", "_window", "last_used")

    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        # One more than is measured: the oldest may reach into the measured time with its end.
        self._samples: deque[_Sample] = deque(maxlen=window.samples + 1)
        self.last_used = 0.0

    def record(self, value: float, now: float) -> None:
        """Count a use; a negative one takes back what was counted too much."""
        self.last_used = now
        if not self._samples or now - self._samples[-1].start >= self._window.seconds:
            self._samples.append(_Sample(now, now))
        sample = self._samples[-1]
        sample.value += value
        sample.last = now

    def measure(self, now: float) -> tuple[float, float]:
        """Use per second, and the seconds that it was measured over: never less than the complete samples."""
        samples, window = self._samples, self._window
        while samples and now - samples[0].last >= window.reach:
            samples.popleft()
        elapsed = now - samples[0].start if samples else 0.0
        # Of a rate that has just begun to be measured it is taken that nothing was used before.
        elapsed += max(0, window.samples - 1 - int(elapsed / window.seconds)) * window.seconds
        elapsed = max(elapsed, LEAST_SECONDS)
        return sum(sample.value for sample in samples) / elapsed, elapsed

    def excess(self, limit: float, now: float) -> float:
        """Seconds without any use after which the rate is down at its limit; 0 if it is not above."""
        rate, elapsed = self.measure(now)
        return (rate - limit) / limit * elapsed if rate > limit else 0.0


class TokenBucket:
    """Tokens that come at the limit's rate, up to as many as the samples' time brings (KIP-599). It begins full."""

    __slots__ = ("_tokens", "_window", "last_used")

    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        self._tokens = float("inf")
        self.last_used = 0.0

    def debt(self, limit: float, now: float) -> float:
        """Seconds until no token is owed, 0 if none is."""
        self._fill(limit, now)
        return max(0.0, -self._tokens / limit)

    def take(self, tokens: float, limit: float, now: float) -> None:
        """Take so many, whether or not they are there."""
        self._fill(limit, now)
        self._tokens -= tokens

    def _fill(self, limit: float, now: float) -> None:
        most = self._window.reach * limit
        self._tokens = min(most, self._tokens + limit * (now - self.last_used))
        self.last_used = now


class Measured(Protocol):
    """What is kept as long as it is used."""

    last_used: float


T = TypeVar("T", bound=Measured)


class InUse(Generic[T]):
    """What is measured, by whom it is measured for; forgotten when it has not been used for `idle_seconds`."""

    def __init__(self, make: Callable[[], T], idle_seconds: float) -> None:
        self._make = make
        self._idle_seconds = idle_seconds
        self._kept: dict[Hashable, T] = {}
        self._swept = 0.0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, owner: Hashable, now: float) -> T:
        """What is measured for the owner, from now on if nothing was."""
        kept = self._kept.get(owner)
        if kept is None:
            if now - self._swept >= self._idle_seconds:
                self._sweep(now)
            kept = self._kept[owner] = self._make()
            kept.last_used = now
        return kept

    def _sweep(self, now: float) -> None:
        self._swept = now
        for owner in [owner for owner, kept in self._kept.items() if now - kept.last_used >= self._idle_seconds]:
            del self._kept[owner]
