"""Runs the `barnabas` command in the process of the tests."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from barnabas.tools.cli import main

Run = Callable[..., tuple[int, str, str]]
_LIBRDKAFKA_LINE = re.compile(r"^%\d\|[^|]*\|[^|]*\|rdkafka#.*\n", re.MULTILINE)


def run_command(capfd: pytest.CaptureFixture[str], arguments: list[str]) -> tuple[int, str, str]:
    """Return the status, output and errors of a command.

    Lines of librdkafka are left out: its clients of earlier tests log from threads of their own until they are
    collected.
    """
    capfd.readouterr()
    try:
        status = main(arguments)
    except SystemExit as end:
        status = int(end.code or 0)
    out, err = capfd.readouterr()
    return status, out, _LIBRDKAFKA_LINE.sub("", err)
