"""Limits of a cleaner pass: its rate of I/O and the rate of its progress reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ...storage.cleaning.clean_job import Event, Progress

SHORTEST_SLEEP = 0.02
PROGRESS_INTERVAL = 0.1
"""Seconds between two progress reports to the broker, which must serve requests."""
PAUSE_SECONDS = 0.0001
"""Seconds of sleep between two buffers of a pass that yields the processor."""


class Throttler:
    """Kafka's Throttler: limits reads and writes to a rate, which may change at any time. It yields after each buffer.

    A thread that waits for this processor, for example a broker with a request, waits for one buffer of work at most.
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
        """Sleep if `size` bytes were read or written faster than the rate allows."""
        now = self._monotonic()
        self._due = max(self._due, now) + size / self.bytes_per_second
        if self._due - now >= SHORTEST_SLEEP:
            self._sleep(self._due - now)
        elif self.pause:
            self._sleep(self.pause)
        else:
            self._yield_processor()


def with_less_progress(events: Iterable[Event], monotonic: Callable[[], float]) -> Iterator[Event]:
    """Yield the events without progress reports that follow another one too soon."""
    due = float("-inf")
    for event in events:
        if isinstance(event, Progress):
            now = monotonic()
            if now < due:
                continue
            due = now + PROGRESS_INTERVAL
        yield event
