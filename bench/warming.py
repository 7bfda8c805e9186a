"""The warm-up of the rival: rounds that do not count, until none of its figures improves or a limit is reached."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

MAX_WARMUPS = 10
MAX_WARMUP_S = 600.0
"""No warm-up round begins later than this, once the requested minimum number of rounds is over."""
STILL_WARMING = 1.03
"""A figure that is better than the previous best by this factor is still improving."""


@dataclass(frozen=True)
class WarmUpResult:
    """The rounds or passes of a warm-up, and the rival's figures that were still improving at its end."""

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
    """Rounds that do not count, until `min_rounds` are over and the rival's `figures` have stopped improving.

    A JVM compiles code that has run often, and compiles it again when it has run more often: this takes more than a few
    seconds. `figures` maps each figure to "higher" or "lower", whichever is better. It is empty without a rival.
    """

    def __init__(
        self,
        figures: Mapping[str, str],
        min_rounds: int,
        *,
        max_rounds: int = MAX_WARMUPS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._figures = figures
        self._min_rounds = min_rounds
        self._max_rounds = max_rounds
        self._clock = clock
        self._begun = clock()
        self._rounds = 0
        self._best: dict[str, float] = {}
        self._rising = tuple(figures)

    def is_over(self) -> bool:
        """Return whether rounds count from now on. With `min_rounds` 0 they count from the first."""
        if not self._min_rounds:
            return True
        if self._rounds < self._min_rounds:
            return False
        return not self._rising or self._rounds >= self._max_rounds or self._spent() >= MAX_WARMUP_S

    def add(self, rivals: Mapping[str, float]) -> None:
        """Add a finished round with the figures of the rival."""
        self._rounds += 1
        self._rising = tuple(name for name in self._figures if self._rises(name, rivals[name]))

    def _rises(self, name: str, value: float) -> bool:
        """Return whether the value clearly improves on the best value so far, and update the best value."""
        best, higher = self._best.get(name), self._figures[name] == "higher"
        if best is None:
            self._best[name] = value
            return True
        self._best[name] = max(best, value) if higher else min(best, value)
        return value > best * STILL_WARMING if higher else value * STILL_WARMING < best

    def _spent(self) -> float:
        return self._clock() - self._begun

    def result(self) -> WarmUpResult:
        """Return the state of the warm-up so far."""
        return WarmUpResult(self._rounds, self._spent(), self._rising)
