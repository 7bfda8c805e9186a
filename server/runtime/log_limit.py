"""Keeps what strangers can provoke from filling the log."""

from __future__ import annotations

import logging
from collections.abc import Callable

LINES = 20
SECONDS = 60.0
MOST = 1000
"""Who have lines of their own at a time."""


class LimitedLog:
    """At most `LINES` lines in `SECONDS`; what was left out is counted and said with the first line after that."""

    def __init__(self, logger: logging.Logger, time: Callable[[], float]) -> None:
        self._logger = logger
        self._time = time
        self._began = time()
        self._lines = 0

    def write(self, level: int, message: str, *arguments: object, error: BaseException | None = None) -> None:
        """Log the message, with the traceback of an error if there is one, or count it."""
        now = self._time()
        if now - self._began >= SECONDS:
            if self._lines > LINES:
                self._logger.log(level, "%d more lines like the following were left out", self._lines - LINES)
            self._began = now
            self._lines = 0
        self._lines += 1
        if self._lines <= LINES:
            self._logger.log(level, message, *arguments, exc_info=error)


class LimitedLogs:
    """A `LimitedLog` for each who has something logged, so that nobody has what others try left out.

    Of more than `MOST` in `SECONDS` the rest have one together, as there may be any number of them.
    """

    def __init__(self, logger: logging.Logger, time: Callable[[], float]) -> None:
        self._logger = logger
        self._time = time
        self._began = time()
        self._logs: dict[str, LimitedLog] = {}
        self._rest = LimitedLog(logger, time)

    def write(self, who: str, level: int, message: str, *arguments: object) -> None:
        """Log the message that somebody is the cause of, or count it."""
        log = self._logs.get(who)
        if log is None and self._has_room():
            log = self._logs[who] = LimitedLog(self._logger, self._time)
        (log or self._rest).write(level, message, *arguments)

    def _has_room(self) -> bool:
        now = self._time()
        if len(self._logs) >= MOST and now - self._began >= SECONDS:
            self._began = now
            self._logs.clear()
        return len(self._logs) < MOST
