"""Messages that pages quote exist in the code of the broker."""

from __future__ import annotations

import errno
import os
import re

import pytest
from tests.docs.page import DOCS

PLACEHOLDER = re.compile(r"…|\b[A-Z]{4,}\b")


def quoted(page: str, column: int) -> list[str]:
    """Return the messages in one column of the tables of a page that have a column of that name."""
    messages: list[str] = []
    inside = False
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        inside = bool(cells) and (inside or cells[min(column, len(cells) - 1)] == "message")
        if inside and len(cells) > column:
            messages += re.findall(r"`([^`]+)`", cells[column])
    return messages


@pytest.mark.parametrize(("page", "column"), [("how-to/troubleshooting.md", 0), ("how-to/monitoring.md", 2)])
def test_messages_of_a_page_exist(page: str, column: int) -> None:
    sources = [path.read_text() for room in ("server", "storage") for path in (DOCS.parent / room).rglob("*.py")]
    code = re.sub(r'"\s*\n\s*f?"', "", "\n".join(sources))  # adjacent literals
    code = re.sub(r"%[sd]|%\.\d[fs]|\{[^{}\n]*\}", "…", code) + os.strerror(errno.EADDRINUSE).lower()
    messages = quoted(page, column)
    assert len(messages) > 4
    for message in messages:
        for part in PLACEHOLDER.split(message):
            assert part.strip(" :.") in code, f"{page}: {message}"
