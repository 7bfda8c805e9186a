"""When sessions expire. Time is counted in ticks, no clock is read.

A broker that was stopped for a while, or is busy, misses ticks and so does not take its own absence for its clients':
what they sent meanwhile is read before the next tick. Source: ExpiryQueue and SessionTrackerImpl of Apache ZooKeeper
3.8.
"""

from __future__ import annotations

TICK_MS = 500
LEAST_TIMEOUT_MS = 2 * TICK_MS
MOST_TIMEOUT_MS = 60_000


def negotiated(timeout_ms: int) -> int:
    """The timeout that a client is given, by the one it asks for."""
    return min(max(timeout_ms, LEAST_TIMEOUT_MS), MOST_TIMEOUT_MS)


class SessionClock:
    """Sessions with a timeout, each alive for that long since it was last heard of, and up to two ticks more."""

    def __init__(self) -> None:
        self._now = 0
        self._lives: dict[int, int] = {}
        self._heard: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._heard)

    def begin(self, session: int, timeout_ms: int) -> None:
        """A session begins, or goes on with another timeout."""
        self._lives[session] = -(-timeout_ms // TICK_MS)
        self._heard[session] = self._now

    def touch(self, session: int) -> None:
        """A session was heard of; one that is over stays so."""
        if session in self._heard:
            self._heard[session] = self._now

    def end(self, session: int) -> None:
        """A session is over."""
        self._lives.pop(session, None)
        self._heard.pop(session, None)

    def tick(self) -> list[int]:
        """`TICK_MS` more have gone by; returns the sessions that have expired by that, which are forgotten."""
        self._now += 1
        lives, now = self._lives, self._now
        expired = [session for session, heard in self._heard.items() if now - heard > lives[session]]
        for session in expired:
            self.end(session)
        return expired
