"""Exponential backoff between attempts, with a maximum and with jitter, so that clients do not retry together
(KIP-144).
"""

from __future__ import annotations

from random import Random

_JITTER = 0.2


class Backoff:
    """`initial_ms · 2^(attempt-1)`, at most `max_ms`, plus or minus a fifth."""

    __slots__ = ("_initial", "_max", "_rng")

    def __init__(self, initial_ms: int, max_ms: int, rng: Random) -> None:
        self._initial = initial_ms / 1000
        self._max = max(initial_ms, max_ms) / 1000
        self._rng = rng

    def delay(self, attempt: int) -> float:
        """Return the seconds to wait after the `attempt`-th consecutive failure (1 is the first)."""
        delay = min(self._max, self._initial * 2.0 ** min(attempt - 1, 30))
        return delay * self._rng.uniform(1 - _JITTER, 1 + _JITTER)
