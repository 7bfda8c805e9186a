"""pytest fixtures: a real broker for the whole run, and a topic of its own for every test.

def test_orders(kafka_broker, kafka_topic):
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap})
    producer.produce(kafka_topic, b"...")
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .embedded import Broker

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[Broker]:
    """A broker on a free loopback port with a temporary folder, shared by the run."""
    from .embedded import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def kafka_topic(kafka_broker: Broker) -> Iterator[str]:
    """The name of a fresh topic with one partition; the topic is gone when the test is over."""
    name = f"topic-{next(_numbers)}"
    kafka_broker.create_topic(name)
    yield name
    kafka_broker.delete_topic(name)
