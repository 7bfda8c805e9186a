"""Limits of log lines that any client can cause."""

from __future__ import annotations

import logging
from collections.abc import Callable

LINES = 20
SECONDS = 60.0
MAX_CAUSES = 1000
"""Causes with a limit of their own at the same time."""


class LimitedLog:
    """A limit of `LINES` lines per `SECONDS`; the first line after that reports the number of dropped lines."""

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
                self._logger.log(level, "%d more lines like the following were dropped", self._lines - LINES)
            self._began = now
            self._lines = 0
        self._lines += 1
        if self._lines <= LINES:
            self._logger.log(level, message, *arguments, exc_info=error)


class LimitedLogs:
    """A `LimitedLog` per cause, such as a principal, so that one cause does not suppress the lines of others.

    Beyond `MAX_CAUSES` per `SECONDS`, further causes share one limit: their number is unbounded.
    """

    def __init__(self, logger: logging.Logger, time: Callable[[], float]) -> None:
        self._logger = logger
        self._time = time
        self._began = time()
        self._logs: dict[str, LimitedLog] = {}
        self._rest = LimitedLog(logger, time)

    def write(self, cause: str, level: int, message: str, *arguments: object) -> None:
        """Log a message with this cause, or count it."""
        log = self._logs.get(cause)
        if log is None and self._has_room():
            log = self._logs[cause] = LimitedLog(self._logger, self._time)
        (log or self._rest).write(level, message, *arguments)

    def _has_room(self) -> bool:
        now = self._time()
        if len(self._logs) >= MAX_CAUSES and now - self._began >= SECONDS:
            self._began = now
            self._logs.clear()
        return len(self._logs) < MAX_CAUSES
