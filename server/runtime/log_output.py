"""Where the process's log goes and what a line of it looks like: for people, or JSON for machines."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from datetime import datetime

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
FILE_BYTES = 100 << 20
"""A file of the log that has grown to this size is put aside."""
FILES_KEPT = 10


@dataclass(frozen=True, slots=True)
class LogOutput:
    """What `barnabas start` was asked for."""

    level: str = "INFO"
    format: str = "text"
    file: str | None = None
    """Goes on there, in files of `FILE_BYTES`; None for standard error."""

    def begin(self) -> None:
        """Have the process's log written like that. Raises OSError, ValueError."""
        handler: logging.Handler = logging.StreamHandler()
        if self.file is not None:
            # Brings sockets, queues and pickles along, half a megabyte that a broker without such a file need not hold.
            from logging.handlers import RotatingFileHandler

            handler = RotatingFileHandler(self.file, maxBytes=FILE_BYTES, backupCount=FILES_KEPT)
        handler.setFormatter(JsonFormatter() if self.format == "json" else TextFormatter(TEXT))
        logging.basicConfig(level=self.level, handlers=[handler])


def _time(record: logging.LogRecord) -> str:
    """Local time with its distance from UTC, so that two machines' logs can be laid side by side."""
    return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")


class TextFormatter(logging.Formatter):
    """Time, level and logger before the message."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - logging's name
        return _time(record)


class JsonFormatter(logging.Formatter):
    """One object a line: `time`, `level`, `logger`, `message`, and `exception` where there is one."""

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
        return json.dumps(facts, ensure_ascii=False)
