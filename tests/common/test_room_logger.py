"""Nobody writes lines of their own into the broker's log."""

from __future__ import annotations

import io
import logging
import re
from pathlib import Path

import pytest

import barnabas
from barnabas.common.room_logger import one_line, room_logger
from barnabas.server.network.socket_server import logger as network_logger
from barnabas.server.runtime.log_limit import LimitedLog

FORGED = "me\n2026-01-01 00:00:00,000 ERROR disk on fire\r\x1b[2J\u202e\u2028\x85"
SERVER = Path(barnabas.__file__).parent / "server"


def written(log: object) -> list[str]:
    """What a handler like that of `barnabas start` writes while `log` is called."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    root = logging.getLogger("barnabas")
    root.addHandler(handler)
    try:
        log()  # type: ignore[operator]
    finally:
        root.removeHandler(handler)
    return stream.getvalue().splitlines()


def test_a_name_with_line_breaks_makes_no_line() -> None:
    [line] = written(lambda: network_logger.warning("closed the connection from %s: %d", FORGED, 5))
    assert line == f"WARNING closed the connection from {one_line(FORGED)}: 5"
    assert "me\\n2026" in line and "\\x1b[2J\\u202e\\u2028\\x85" in line
    [line] = written(lambda: LimitedLog(network_logger, lambda: 0.0).write(logging.WARNING, "of %s", FORGED))
    assert line == f"WARNING of {one_line(FORGED)}"


def test_a_traceback_is_indented_and_cannot_be_taken_for_lines_of_the_log() -> None:
    def fail() -> None:
        try:
            raise ValueError(FORGED)
        except ValueError:
            room_logger("apis").exception("it failed")

    first, *others = written(fail)
    assert first == "ERROR it failed"
    assert others and all(line.startswith("    ") for line in others)
    assert any("ValueError: me" in line for line in others)


@pytest.mark.parametrize("text", ["plain", "größer", "日本", "100 %"])
def test_what_is_no_control_character_stays(text: str) -> None:
    assert one_line(text) == text


def test_every_room_of_the_server_logs_so() -> None:
    by_name = re.compile(r'getLogger\("barnabas\.')
    found = [path.name for path in SERVER.rglob("*.py") if by_name.search(path.read_text())]
    assert not found
