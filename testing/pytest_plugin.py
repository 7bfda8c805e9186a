"""pytest fixtures: a real broker for the whole run, one of its own for a test, and topics that go with their tests.

def test_orders(kafka_broker, kafka_topic):
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap})
    producer.produce(kafka_topic, b"...")

@pytest.mark.kafka(topics={"orders": 3}, config={"message.max.bytes": 2_000_000})
def test_large_orders(kafka): ...

Under pytest-xdist every worker has a broker of its own, on a port and in a folder of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .broker import Broker
    from .cluster import Cluster

MARKER = (
    "kafka(topics=(), config=None, snapshot=None, clock=None, schema_registry=False, partitions=1): arguments of "
    "the broker of fixture `kafka`, and the number of partitions of `kafka_topic`"
)
_OF_BROKER = ("topics", "config", "snapshot", "clock", "schema_registry")
_KNOWN = (*_OF_BROKER, "partitions")
_OTHERS = {"kafka_broker", "kafka_cluster", "kafka_topic", "kafka_topic_factory"}

_numbers = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", MARKER)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Reject a marker of a test without effect; a marker of its module may be for other tests.

    Raises pytest.UsageError.
    """
    in_vain = {name for marker in item.own_markers if marker.name == "kafka" for name in marker.kwargs} & set(
        _OF_BROKER
    )
    fixtures = getattr(item, "fixturenames", ())
    if in_vain and "kafka" not in fixtures and not _OTHERS.isdisjoint(fixtures):
        raise pytest.UsageError(
            "the marker has settings of a broker for fixture `kafka`; kafka_broker and its topics are shared, with "
            "settings of fixture kafka_config, and a kafka_cluster has create_topic"
        )


def _marked(item: pytest.Item) -> dict[str, Any]:
    """Return the arguments of a test's markers, the closest last. Raises pytest.UsageError."""
    wanted: dict[str, Any] = {}
    for marker in reversed(list(item.iter_markers("kafka"))):
        unknown = [name for name in marker.kwargs if name not in _KNOWN]
        if marker.args or unknown:
            raise pytest.UsageError(f"@pytest.mark.kafka accepts keyword arguments {', '.join(_KNOWN)}")
        wanted.update(marker.kwargs)
    return wanted


@pytest.fixture(scope="session")
def kafka_config() -> dict[str, Any]:
    """Settings of `kafka_broker`; override this fixture in a conftest.py to choose them."""
    return {}


@pytest.fixture(scope="session")
def kafka_broker(kafka_config: dict[str, Any]) -> Iterator[Broker]:
    """A broker on a free loopback port with a temporary folder, shared by the run."""
    from .broker import Broker

    with Broker(config=kafka_config) as broker:
        yield broker


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker for this test alone, with the arguments of `@pytest.mark.kafka(topics=…, config=…, snapshot=…, clock=…,
    …)`.
    """
    from .broker import Broker

    wanted = {name: value for name, value in _marked(request.node).items() if name in _OF_BROKER}
    with Broker(**wanted) as broker:
        yield broker


@pytest.fixture
def kafka_cluster(kafka_config: dict[str, Any]) -> Iterator[Cluster]:
    """Three brokers for this test alone, to kill, stop and start."""
    from .cluster import Cluster

    with Cluster(brokers=3, config=kafka_config) as cluster:
        yield cluster


@pytest.fixture
def kafka_topic_factory(kafka_broker: Broker) -> Iterator[Callable[..., str]]:
    """Create topics in the shared broker: `kafka_topic_factory(partitions=3, config={…})` returns a new name.

    They are deleted after the test.
    """
    names: list[str] = []

    def make(partitions: int = 1, config: dict[str, Any] | None = None) -> str:
        __tracebackhide__ = True
        name = f"topic-{next(_numbers)}"
        kafka_broker.create_topic(name, partitions, config)
        names.append(name)
        return name

    yield make
    for name in names:
        if kafka_broker.has_topic(name):
            kafka_broker.delete_topic(name)


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_topic_factory: Callable[..., str]) -> str:
    """The name of a new topic, which is deleted after the test.

    It has one partition, or the number in `@pytest.mark.kafka(partitions=3)`.
    """
    return kafka_topic_factory(_marked(request.node).get("partitions", 1))
