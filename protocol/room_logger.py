"""The loggers of the rooms: a message is one line of the log, whatever names of strangers are in it.

Client ids, group ids and addresses come from anybody. A name with a line break in it would write lines of its own into
the log, and one with a terminal's control sequences would have whoever reads it see something else.
"""

from __future__ import annotations

import logging
import re
import traceback

_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def one_line(text: str) -> str:
    """The text with control characters, line breaks and turns of direction written as Python's escapes."""
    return _UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)


class _OneLine(logging.Filter):
    """Lets every record through, its message on one line and a traceback indented, so that it is no line of its own."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = one_line(record.getMessage()), ()
        if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
            lines = "".join(traceback.format_exception(record.exc_info[1])).splitlines()
            record.exc_text = "\n".join("    " + one_line(line) for line in lines)
        return True


_filter = _OneLine()


def room_logger(room: str) -> logging.Logger:
    """The logger `barnabas.ROOM`."""
    logger = logging.getLogger(f"barnabas.{room}")
    logger.addFilter(_filter)
    return logger
