"""How fast a pass of the cleaner may go, and how often it tells of its progress, wherever it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ...storage.cleaning.clean_job import Event, Progress

SHORTEST_SLEEP = 0.02
PROGRESS_INTERVAL = 0.1
"""Seconds between two words of progress to the broker, which has requests to answer."""
PAUSE_SECONDS = 0.0001
"""Slept between two buffers of a pass that gives way, so that others get the processor."""


class Throttle:
    """Holds reads and writes down to a rate, which may change at any time; Kafka's Throttler. Each is a place to yield.

    So whoever waits for this processor, a broker with a request say, waits for one buffer of work at most.
    """

    def __init__(
        self, monotonic: Callable[[], float], sleep: Callable[[float], None], yield_processor: Callable[[], None]
    ) -> None:
        self.bytes_per_second = float("inf")
        self.pause = 0.0
        """Seconds to sleep each time, for work that must give way more than by yielding."""
        self._monotonic = monotonic
        self._sleep = sleep
        self._yield_processor = yield_processor
        self._due = 0.0

    def __call__(self, size: int) -> None:
        """So many bytes were read or written: sleep if that was ahead of its time."""
        now = self._monotonic()
        self._due = max(self._due, now) + size / self.bytes_per_second
        if self._due - now >= SHORTEST_SLEEP:
            self._sleep(self._due - now)
        elif self.pause:
            self._sleep(self.pause)
        else:
            self._yield_processor()


def with_less_progress(events: Iterable[Event], monotonic: Callable[[], float]) -> Iterator[Event]:
    """The events, without progress that comes soon after other progress."""
    due = float("-inf")
    for event in events:
        if isinstance(event, Progress):
            now = monotonic()
            if now < due:
                continue
            due = now + PROGRESS_INTERVAL
        yield event
