"""The destination and the format of the process's log: text or JSON."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...common.printable_text import printable, printable_json

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
FILE_BYTES = 100 << 20
"""A log file of this size is rotated."""
FILES_KEPT = 10


@dataclass(frozen=True, slots=True)
class LogOutput:
    """The log options of `barnabas start`."""

    level: str = "INFO"
    format: str = "text"
    file: str | None = None
    """The log file, rotated at `FILE_BYTES`; None for standard error."""

    def begin(self) -> None:
        """Configure the log of the process. Raises OSError, ValueError."""
        handler: logging.Handler = logging.StreamHandler()
        if self.file is not None:
            # Imports sockets, queues and pickles: half a megabyte that a broker without a log file does not need.
            from logging.handlers import RotatingFileHandler

            handler = RotatingFileHandler(self.file, maxBytes=FILE_BYTES, backupCount=FILES_KEPT)
        handler.setFormatter(JsonFormatter() if self.format == "json" else TextFormatter(TEXT))
        logging.basicConfig(level=self.level, handlers=[handler])


def _time(record: logging.LogRecord) -> str:
    """Return local time with its UTC offset, so that logs of several machines can be compared."""
    return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")


class TextFormatter(logging.Formatter):
    """Time, level and logger before the message."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - logging's name
        return _time(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        # A name from a client must not begin a line that resembles another event.
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        # The message of an exception may have names from a client, too: its lines are indented, and an event is not.
        return "\n".join(f"    {printable(line)}" for line in super().formatException(ei).splitlines())


class JsonFormatter(logging.Formatter):
    """One object per line: `time`, `level`, `logger`, `message`, and `exception` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        facts = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            facts["exception"] = record.exc_text
        return printable_json(json.dumps(facts, ensure_ascii=False))
