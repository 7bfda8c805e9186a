"""Loggers that escape control characters, so that each message is one line of the log.

Client ids, group ids and addresses are chosen by unauthenticated clients. Without the escapes, a name with a line break
forges log lines, and one with terminal control sequences changes the text on an operator's screen.
"""

from __future__ import annotations

import logging
import re
import traceback

_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def one_line(text: str) -> str:
    """Return the text with control characters, line breaks and direction marks as Python escapes."""
    return _UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)


class _OneLine(logging.Filter):
    """A filter that escapes each message and indents its traceback: no traceback line looks like a record."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = one_line(record.getMessage()), ()
        if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
            lines = "".join(traceback.format_exception(record.exc_info[1])).splitlines()
            record.exc_text = "\n".join("    " + one_line(line) for line in lines)
        return True


_filter = _OneLine()


def room_logger(room: str) -> logging.Logger:
    """Return the logger `barnabas.ROOM` with the escaping filter."""
    logger = logging.getLogger(f"barnabas.{room}")
    logger.addFilter(_filter)
    return logger
