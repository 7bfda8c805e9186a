"""Checks of the input and output of a job, without Spark."""

from __future__ import annotations

from collections.abc import Mapping

from ..arrow.client import BlockingClient
from ..arrow.segment_files import find_folders
from .options import OptionReader, ReadSelection
from .resolve import discover


def check_topics(bootstrap_servers: str, topics: str, options: Mapping[str, str]) -> None:
    """Check that the cluster responds and has these topics (names by comma). Raises KafkaError, ValueError."""
    settings = OptionReader({**options, "kafka.bootstrap.servers": bootstrap_servers}).client_settings()
    with BlockingClient(settings) as client:
        discover(client, ReadSelection(topics=_names(topics)))


def check_folders(path: str, topics: str | None, options: Mapping[str, str]) -> None:
    """Check that there are partition directories, of these topics if given. Raises OSError, ValueError."""
    OptionReader(options)  # rejects misspelt options
    find_folders(path, frozenset(_names(topics or "")))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
