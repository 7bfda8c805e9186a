"""An engine that reads a table again and again while a follower writes it.

`python -m tests.table.engine_reads ENGINE TABLE EXPECTED [JARS]` reads until the table has the expected number of rows,
and fails unless each state has the records of each partition up to an offset, each of them once. It prints the number
of different states that it has read. ENGINE is polars, duckdb or spark, and TABLE as for `--to`.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

PATIENCE_S = 300.0
Rows = Iterable[tuple[int, int]]
"""Partition and offset of each row."""


def metadata_of(place: str) -> str:
    """The current metadata file of the Iceberg table, from the SQLite catalog."""
    with sqlite3.connect(f"{place.partition('#')[0]}/catalog.db") as catalog:
        ((found,),) = catalog.execute("SELECT metadata_location FROM iceberg_tables").fetchall()
    return str(found)


def polars_reader(kind: str, place: str, jars: str) -> Callable[[], Rows]:
    import polars as pl

    def scan() -> Any:
        if kind == "iceberg":
            return pl.scan_iceberg(metadata_of(place))
        return pl.scan_delta(place) if kind == "delta" else pl.scan_parquet(f"{place}/*.parquet")

    return lambda: scan().select("partition", "offset").collect().rows()


def duckdb_reader(kind: str, place: str, jars: str) -> Callable[[], Rows]:
    import duckdb
    import duckdb_ext

    connection = duckdb_ext.init(duckdb.connect())
    for name in {"iceberg": ("avro", "iceberg"), "delta": ("delta",)}[kind]:
        connection.load_extension(name)

    def read() -> Rows:
        source = f"iceberg_scan('{metadata_of(place)}')" if kind == "iceberg" else f"delta_scan('{place}')"
        return connection.sql(f'SELECT partition, "offset" FROM {source}').fetchall()

    return read


def spark_reader(kind: str, place: str, jars: str) -> Callable[[], Rows]:
    from tests.spark.lake_tables import settings
    from tests.table.spark_tables import catalog

    from barnabas.spark.session import session

    folder = place.partition("#")[0]
    config = {**settings(folder, jars), **catalog(folder), "spark.sql.catalog.local.cache-enabled": "false"}
    spark = session("local[1]", config=config)
    spark.sparkContext.setLogLevel("ERROR")

    def read() -> Rows:
        frame = spark.table("local.db.rows") if kind == "iceberg" else spark.read.format(kind).load(place)
        return [(row.partition, row.offset) for row in frame.select("partition", "offset").collect()]

    return read


def main(engine: str, to: str, expected: str, jars: str = "") -> None:
    kind, _, place = to.partition("://")
    readers = {"polars": polars_reader, "duckdb": duckdb_reader, "spark": spark_reader}
    read = readers[engine](kind, place, jars)
    states: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    while int(expected) not in states:
        assert time.monotonic() < deadline, f"{states} of {expected} rows"
        rows = list(read())
        for partition in {number for number, _ in rows}:
            offsets = sorted(offset for number, offset in rows if number == partition)
            assert offsets == list(range(len(offsets))), f"{engine} reads {len(offsets)} rows of partition {partition}"
        if not states:
            print("begun", flush=True)
        states.add(len(rows))
    print(len(states), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
