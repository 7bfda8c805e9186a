"""A broker's wall clock for tests that must not depend on how long something takes."""

from __future__ import annotations

from barnabas.testing import Clock


class StandingClock(Clock):
    """Goes on when it is told to."""

    at_ms = 1_000_000_000_000

    def now_ms(self) -> int:
        return self.at_ms
