"""The times at which sessions expire, counted in ticks: no clock is read.

A broker that was stopped for a while, or is busy, misses ticks and therefore does not mistake its own absence for its
clients': requests that arrived during that time are read before the next tick. Source: ExpiryQueue and
SessionTrackerImpl of Apache ZooKeeper 3.8.
"""

from __future__ import annotations

TICK_MS = 500
LEAST_TIMEOUT_MS = 2 * TICK_MS
MAX_TIMEOUT_MS = 60_000


def negotiate_session_timeout(timeout_ms: int) -> int:
    """Return the timeout of a session for a requested timeout."""
    return min(max(timeout_ms, LEAST_TIMEOUT_MS), MAX_TIMEOUT_MS)


class SessionTracker:
    """Sessions with a timeout; each expires when no request has arrived for that long, at most two ticks later."""

    def __init__(self) -> None:
        self._now = 0
        self._lives: dict[int, int] = {}
        self._last_contact_ticks: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._last_contact_ticks)

    def begin(self, session: int, timeout_ms: int) -> None:
        """Begin a session, or continue it with another timeout."""
        self._lives[session] = -(-timeout_ms // TICK_MS)
        self._last_contact_ticks[session] = self._now

    def touch(self, session: int) -> None:
        """Prolong a session; an expired session does not revive."""
        if session in self._last_contact_ticks:
            self._last_contact_ticks[session] = self._now

    def end(self, session: int) -> None:
        """Forget a session that has ended."""
        self._lives.pop(session, None)
        self._last_contact_ticks.pop(session, None)

    def tick(self) -> list[int]:
        """Advance the time by `TICK_MS`; remove and return the sessions that have expired."""
        self._now += 1
        lives, now = self._lives, self._now
        expired = [session for session, tick in self._last_contact_ticks.items() if now - tick > lives[session]]
        for session in expired:
            self.end(session)
        return expired
