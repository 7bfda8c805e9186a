"""A wall clock of a broker for tests whose result must not depend on elapsed time."""

from __future__ import annotations

from barnabas.testing import Clock


class ManualClock(Clock):
    """A clock that changes only when a test sets `at_ms`."""

    at_ms = 1_000_000_000_000

    def now_ms(self) -> int:
        return self.at_ms
