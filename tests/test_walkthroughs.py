"""The classes, methods and functions in docs/contributing/walkthroughs.md exist."""

from __future__ import annotations

import re

from tests.test_kafka_names import ROOT, symbols_of

PAGE = (ROOT / "docs" / "contributing" / "walkthroughs.md").read_text()
ROOMS = ("protocol", "server", "storage")


def test_the_names_of_the_page_exist() -> None:
    sources = [path.read_text() for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    symbols = set[str]().union(*map(symbols_of, sources))
    names = {
        name for name in re.findall(r"`([A-Za-z]\w*(?:\.\w+)?|_[A-Z]\w*(?:\.\w+)?)`", PAGE) if name not in ("handle",)
    }
    assert sorted(names - symbols) == []
