"""A wall clock that a test sets: what it is to a broker that records, offsets and producers grow old."""

from __future__ import annotations

import time
from datetime import datetime, timedelta


class Clock:
    """Goes on with the machine's, shifted by what the test says. `Broker(clock=Clock())`; any thread may use it.

    It is the broker's wall clock: timestamps of records, retention, compaction lags, expiry of offsets. Timeouts of
    requests and sessions are measured in elapsed time, which nobody shifts.
    """

    def __init__(self, now: datetime | None = None) -> None:
        """It begins at `now`, by default the machine's time."""
        self._shift_ms = 0
        if now is not None:
            self.set(now)

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000 + self._shift_ms

    def advance(self, **units: float) -> None:
        """Move on by so much, in the units of `timedelta`: `advance(days=7, hours=1)`; less than nothing goes back."""
        self._shift_ms += int(timedelta(**units) / timedelta(milliseconds=1))

    def set(self, now: datetime) -> None:
        """It is that time now, of the local zone if it names none."""
        self._shift_ms = int(now.timestamp() * 1000) - time.time_ns() // 1_000_000
