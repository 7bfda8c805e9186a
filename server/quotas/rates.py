"""How use is measured: sampled rates and token buckets (Kafka's Rate, TokenBucket and QuotaUtils).

All times are seconds of one clock that never goes back.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Protocol, TypeVar

LEAST_SECONDS = 0.001
"""A rate over less time than this is taken over this."""
BUCKET_IDLE_SECONDS = 3600.0
"""A client that has changed nothing for this long owes nothing, however much it did before."""
MOST_EVEN = 10_000
"""How many that owe nothing are remembered: clients name themselves, and may take a new name for each request."""


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

    __slots__ = ("_limit", "_samples", "_window")

    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        # One more than is measured: the oldest may reach into the measured time with its end.
        self._samples: deque[_Sample] = deque(maxlen=window.samples + 1)
        self._limit = math.inf

    def record(self, value: float, now: float) -> None:
        """Count a use; a negative one takes back what was counted too much."""
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
        """Seconds without any use after which the rate is down at its limit; 0 if it is not above.

        A rate is above a limit of 0 for ever.
        """
        self._limit = limit
        rate, elapsed = self.measure(now)
        if rate <= limit:
            return 0.0
        return (rate - limit) / limit * elapsed if limit > 0 else math.inf

    def is_fresh(self, now: float) -> bool:
        """Whether all samples are out of reach."""
        return not self._samples or now - self._samples[-1].last >= self._window.reach

    def owes(self, now: float) -> bool:
        """Whether the rate is above the limit that it was held against last."""
        return self.measure(now)[0] > self._limit


class TokenBucket:
    """Tokens that come at the limit's rate, up to as many as the samples' time brings (KIP-599). It begins full."""

    __slots__ = ("_filled_at", "_limit", "_tokens", "_window")

    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        self._tokens = math.inf
        self._limit = 0.0
        self._filled_at = 0.0

    def debt(self, limit: float, now: float) -> float:
        """Seconds until no token is owed, 0 if none is."""
        self._fill(limit, now)
        return max(0.0, -self._tokens / limit)

    def take(self, tokens: float, limit: float, now: float) -> None:
        """Take so many, whether or not they are there."""
        self._fill(limit, now)
        self._tokens -= tokens

    def is_fresh(self, now: float) -> bool:
        """Whether it is full again, or has been idle for so long that it is taken to be."""
        full = self._window.reach * self._limit
        return now - self._filled_at >= BUCKET_IDLE_SECONDS or self._filled(self._limit, now) >= full

    def owes(self, now: float) -> bool:
        """Whether tokens are owed, at the limit that it was filled at last."""
        return self._filled(self._limit, now) < 0

    def _fill(self, limit: float, now: float) -> None:
        self._tokens = min(self._window.reach * limit, self._filled(limit, now))
        self._limit = limit
        self._filled_at = now

    def _filled(self, limit: float, now: float) -> float:
        return self._tokens + limit * (now - self._filled_at)


class Measured(Protocol):
    """What somebody uses and pays back by waiting."""

    def is_fresh(self, now: float) -> bool:
        """Whether it is as one that was just made."""

    def owes(self, now: float) -> bool:
        """Whether whoever uses it has to wait."""


T = TypeVar("T", bound=Measured)


class InUse(Generic[T]):
    """What is measured, by its owner, in the order of use.

    Forgotten is what is fresh, which changes nothing, and beyond `MOST_EVEN` the longest unused. Whoever owes is
    never forgotten: it costs a client a connection that waits, or partitions that it changed, so they are never many.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._kept: OrderedDict[Hashable, T] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, owner: Hashable, now: float) -> T:
        """What is measured for the owner, from now on if nothing was."""
        kept = self._kept.get(owner)
        if kept is None:
            self._forget(now)
            kept = self._kept[owner] = self._make()
        else:
            self._kept.move_to_end(owner)
        return kept

    def _forget(self, now: float) -> None:
        """Look at the two oldest, one more than is added, so that they become fewer without anybody waiting."""
        for owner, oldest in list(islice(self._kept.items(), 2)):
            owes = oldest.owes(now)
            if oldest.is_fresh(now) or (len(self._kept) >= MOST_EVEN and not owes):
                del self._kept[owner]
            elif owes:
                self._kept.move_to_end(owner)
