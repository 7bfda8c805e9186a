"""docs/configuration.md is what the tables of keys say."""

from __future__ import annotations

from pathlib import Path

from barnabas.server.configs.catalogue import BROKER_KEYS, TOPIC_KEYS
from barnabas.server.configs.document import render

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render(), (
        "write it anew: python -m barnabas.server.configs.document > docs/configuration.md"
    )


def test_every_key_is_on_the_page() -> None:
    page = render()
    assert [name for name in [*BROKER_KEYS, *TOPIC_KEYS] if f"`{name}`" not in page] == []
