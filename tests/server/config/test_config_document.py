"""docs/configuration.md is what the tables of keys say."""

from __future__ import annotations

from pathlib import Path

from barnabas.server.config.document import render
from barnabas.server.config.keys.catalogue import BROKER_KEYS, TOPIC_KEYS

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render(), (
        "write it anew: python -m barnabas.server.config.document > docs/configuration.md"
    )


def test_every_key_is_on_the_page() -> None:
    page = render()
    assert [name for name in [*BROKER_KEYS, *TOPIC_KEYS] if f"`{name}`" not in page] == []
