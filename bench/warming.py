"""How long a rival is warmed up: until none of its figures gets better any more, within bounds that a result names."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

MAX_WARMUPS = 10
MAX_WARMUP_S = 600.0
"""No round that warms up begins later than that, if as many as were asked for are over."""
STILL_WARMING = 1.03
"""A figure that is so much better than the best before still gets better."""


@dataclass(frozen=True)
class Warmth:
    """Rounds, or passes, before those that count, and the rival's figures that nobody saw stop getting better."""

    rounds: int
    seconds: float
    rising: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.rounds:
            return "none"
        if not self.rising:
            return str(self.rounds)
        return f"{self.rounds}, and Kafka still got better in {' and '.join(self.rising)}"


class WarmUp:
    """Rounds that do not count until `least` are over and the rival's `figures` are as good as they get.

    A JVM compiles what has run often enough, and again what has run still more often: a few seconds are not enough.
    `figures` maps each to "higher" or "lower", whichever is better; none are given where there is no rival.
    """

    def __init__(
        self,
        figures: Mapping[str, str],
        least: int,
        *,
        most: int = MAX_WARMUPS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._figures = figures
        self._least = least
        self._most = most
        self._clock = clock
        self._begun = clock()
        self._rounds = 0
        self._best: dict[str, float] = {}
        self._rising = tuple(figures)

    def is_over(self) -> bool:
        """Whether rounds count from now on; without a `least` they do from the first."""
        if not self._least:
            return True
        if self._rounds < self._least:
            return False
        return not self._rising or self._rounds >= self._most or self._spent() >= MAX_WARMUP_S

    def add(self, rivals: Mapping[str, float]) -> None:
        """A round is over; figures of the rival."""
        self._rounds += 1
        self._rising = tuple(name for name in self._figures if self._rises(name, rivals[name]))

    def _rises(self, name: str, value: float) -> bool:
        """Whether this is better than all before; from then on it is what others have to beat."""
        best, higher = self._best.get(name), self._figures[name] == "higher"
        if best is None:
            self._best[name] = value
            return True
        self._best[name] = max(best, value) if higher else min(best, value)
        return value > best * STILL_WARMING if higher else value * STILL_WARMING < best

    def _spent(self) -> float:
        return self._clock() - self._begun

    def warmth(self) -> Warmth:
        """Return the state of the warm-up so far."""
        return Warmth(self._rounds, self._spent(), self._rising)
