"""The times at which a follower begins its commits."""

from __future__ import annotations

from collections import deque

_REMEMBERED = 5
"""Number of recent commits; the longest of their durations is the estimate for the next commit."""


class CommitSchedule:
    """Times in seconds of the follower's clock, for commits that end one interval after the oldest of their records.

    A commit contains the records that existed when it began, so that the records of the next one are younger. The next
    commit begins earlier than one interval after that time, by the duration that is expected of it.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._durations: deque[float] = deque(maxlen=_REMEMBERED)
        self._complete_until = float("-inf")

    def next_begin(self) -> float:
        """Return the time at which the next commit begins if there are records. The first one begins immediately."""
        # At least half an interval after the last one: otherwise one slow commit would cause several small ones.
        expected = max(self._durations, default=0.0)
        return self._complete_until + self._interval_s - min(expected, self._interval_s / 2)

    def add(self, began: float, ended: float, *, is_complete: bool) -> None:
        """Add the times of a commit. If it lacks records that existed when it began, it does not postpone the next
        commit, which usually begins immediately.
        """
        self._durations.append(ended - began)
        if is_complete:
            self._complete_until = began
