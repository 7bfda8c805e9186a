"""What the tests of followed tables share: a broker, one run of a follower, and the rows that foreign engines read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas import Broker

try:
    import pyarrow  # noqa: F401
except ImportError:
    collect_ignore_glob = ["test_*"]
    if os.environ.get("CI") == "true":
        raise

ALL_FORMATS = ("parquet", "delta", "iceberg", "duckdb")
FORMATS = ["parquet", "iceberg", *(pytest.param(kind, marks=pytest.mark.verify) for kind in ("delta", "duckdb"))]
"""All of them in `make verify`."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(config={"log.retention.ms": "-1"}) as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    """A topic with two partitions, named after the test."""
    name = "".join(c if c.isalnum() else "." for c in request.node.name)[:200]
    broker.create_topic(name, 2)
    return name


def location(kind: str, folder: Path) -> str:
    """The place of a table of that format."""
    pytest.importorskip({"parquet": "pyarrow", "delta": "deltalake", "iceberg": "pyiceberg", "duckdb": "duckdb"}[kind])
    place = {
        "parquet": f"parquet://{folder}/table",
        "delta": f"delta://{folder}/table",
        "iceberg": f"iceberg://{folder}/lake#db.rows",
        "duckdb": f"duckdb:{folder}/rows.duckdb#rows",
    }
    return place[kind]


def rows_of(to: str) -> list[dict[str, Any]]:
    """The rows of a table as an engine reads them that is not the writer: DuckDB, delta-rs, pyiceberg."""
    kind, _, place = to.partition("://")
    if kind == "parquet":
        import duckdb

        found = duckdb.sql(f"SELECT * FROM read_parquet('{place}/**/*.parquet', union_by_name = true)")
        return list(found.to_arrow_table().to_pylist())
    if kind == "delta":
        import pyarrow as pa
        from deltalake import DeltaTable, QueryBuilder

        reader = QueryBuilder().register("t", DeltaTable(place)).execute("SELECT * FROM t")
        return list(pa.table(reader).to_pylist())
    if kind == "iceberg":
        from pyiceberg.catalog.sql import SqlCatalog

        folder, _, name = place.partition("#")
        catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
        return list(catalog.load_table(name).scan().to_arrow().to_pylist())
    import duckdb

    path, _, name = to.removeprefix("duckdb:").partition("#")
    with duckdb.connect(path, read_only=True) as connection:
        return list(connection.sql(f"SELECT * FROM {name}").to_arrow_table().to_pylist())


def produce(broker: Broker, topic: str, rows: Iterable[dict[str, Any]], **settings: str) -> None:
    """Write with librdkafka; a row is the keyword arguments of its `produce`."""
    from tests.arrow.conftest import produce as write

    write(broker, topic, rows, **settings)
