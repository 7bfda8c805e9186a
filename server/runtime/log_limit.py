"""Keeps what strangers can provoke from filling the log."""

from __future__ import annotations

import logging
from collections.abc import Callable

LINES = 20
SECONDS = 60.0


class LimitedLog:
    """At most `LINES` lines in `SECONDS`; what was left out is counted and said with the first line after that."""

    def __init__(self, logger: logging.Logger, time: Callable[[], float]) -> None:
        self._logger = logger
        self._time = time
        self._began = time()
        self._lines = 0

    def write(self, level: int, message: str, *arguments: object) -> None:
        """Log the message, or count it."""
        now = self._time()
        if now - self._began >= SECONDS:
            if self._lines > LINES:
                self._logger.log(level, "%d more lines like the following were left out", self._lines - LINES)
            self._began = now
            self._lines = 0
        self._lines += 1
        if self._lines <= LINES:
            self._logger.log(level, message, *arguments)
