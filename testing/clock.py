"""A wall clock that a test sets, to age records, offsets and producers."""

from __future__ import annotations

import time
from datetime import datetime, timedelta


class Clock:
    """Advances with the machine's clock, with an offset set by the test. `Broker(clock=Clock())`; thread-safe.

    It is the broker's wall clock: timestamps of records, retention, compaction lags, expiry of offsets. Timeouts of
    requests and sessions use elapsed time, which is not affected.
    """

    def __init__(self, now: datetime | None = None) -> None:
        """Start at `now`, by default the machine's time."""
        self._shift_ms = 0
        if now is not None:
            self.set(now)

    def now_ms(self) -> int:
        """Return milliseconds since 1970."""
        return time.time_ns() // 1_000_000 + self._shift_ms

    def advance(self, **units: float) -> None:
        """Advance the clock, in the units of `timedelta`: `advance(days=7, hours=1)`; negative values set it back."""
        self._shift_ms += int(timedelta(**units) / timedelta(milliseconds=1))

    def set(self, now: datetime) -> None:
        """Set the clock, in the local zone by default."""
        self._shift_ms = int(now.timestamp() * 1000) - time.time_ns() // 1_000_000
