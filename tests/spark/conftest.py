"""What the tests of the Spark source share: sources called without Spark, and a session."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.foreign_tools import CHECKOUT, require_tool, skip_or_fail
from tests.java import QUICK_FLAGS

from barnabas import Broker

try:
    import pyarrow  # noqa: F401
    import pyspark  # noqa: F401
except ImportError:
    collect_ignore_glob = ["test_*"]
    if os.environ.get("CI") == "true":
        raise

Row = dict[str, Any]
KEEP_ALL = {"log.retention.ms": "-1"}


class Cluster:
    """A broker and what to do with it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def produce(self, topic: str, rows: Iterable[Row], **settings: str) -> None:
        """Write with librdkafka; a row is the keyword arguments of its `produce`."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "log_level": 0, **settings})
        for row in rows:
            while True:
                try:
                    producer.produce(topic, **row)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(60) == 0

    def options(self, subscribe: str | None = None, **more: str) -> dict[str, str]:
        """Options of a source; names with a dot are given as `kafka_check_crcs`."""
        named = {name.replace("_", "."): value for name, value in more.items()}
        return {"kafka.bootstrap.servers": self.bootstrap, **({"subscribe": subscribe} if subscribe else {}), **named}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    # Records here are as old as the tests want them to be.
    with Broker(config=KEEP_ALL) as broker:
        yield Cluster(broker)


def columns(**kinds: Any) -> Any:
    """A Spark schema of columns by name and type, `int`, `str`, `bytes` or a Spark type."""
    from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

    plain = {int: LongType(), str: StringType(), bytes: BinaryType()}
    return StructType([StructField(name, plain.get(kind, kind)) for name, kind in kinds.items()])


def read(options: Mapping[str, str], schema: Any = None) -> list[Row]:
    """What a batch query would get, without Spark."""
    from barnabas.spark.source import BarnabasSource

    source = BarnabasSource(dict(options))
    reader = source.reader(schema or source.schema())
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def read_log(options: Mapping[str, str], schema: Any = None) -> list[Row]:
    """What a batch query over segment files would get, without Spark."""
    from barnabas.spark.log_source import BarnabasLogSource

    source = BarnabasLogSource(dict(options))
    reader = source.reader(schema or source.schema())
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One session on two threads; its workers find this checkout, installed or not."""
    require_tool("java", "Spark needs Java 17 or later")
    from barnabas.spark.session import session

    folder: Path = tmp_path_factory.mktemp("spark")
    paths = [str(CHECKOUT / ".src"), str(CHECKOUT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    config = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": " ".join(QUICK_FLAGS),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
    opened = session("local[2]", app_name="tests", config=config)
    opened.sparkContext.setLogLevel("ERROR")
    yield opened
    opened.stop()


def require_pyspark(version: str) -> None:
    """Skip unless this PySpark is at least that old; under CI it has to be."""
    import pyspark

    if tuple(map(int, pyspark.__version__.split(".")[:2])) < tuple(map(int, version.split("."))):
        skip_or_fail(f"PySpark {version} or later is needed, this is {pyspark.__version__}")
