"""Whether there is what a job is to read or write, asked without Spark."""

from __future__ import annotations

from collections.abc import Mapping

from .client import BlockingClient
from .options import OptionReader, ReadSelection
from .resolve import discover


def check_topics(bootstrap_servers: str, topics: str, options: Mapping[str, str]) -> None:
    """Whether the cluster answers and has these topics (names by comma). Raises KafkaError, ValueError."""
    names = tuple(name.strip() for name in topics.split(",") if name.strip())
    settings = OptionReader({**options, "kafka.bootstrap.servers": bootstrap_servers}).client_settings()
    with BlockingClient(settings) as client:
        discover(client, ReadSelection(topics=names))
