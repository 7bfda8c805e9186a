"""`barnabas spark pipeline`: a year of flights through a broker and Spark, into a state per aircraft and Parquet, and
without Spark into an Iceberg table that DuckDB reads.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Annotated, Any

import typer

from .demo import Flight, load_flights, require_confluent_kafka

_TOPICS: dict[str, dict[str, str]] = {"flights": {}, "aircraft": {"cleanup.policy": "compact"}}
_COUNT = 'select count(*), count(distinct (partition, "offset")) from flights'
_BUSIEST = """
    select key, count(*), sum(try_cast(split_part(value, ',', 16) as bigint)) from flights
    where key is not null group by key order by 2 desc limit 5
"""
_SETTINGS = {"spark.sql.shuffle.partitions": "4", "spark.ui.showConsoleProgress": "false", "spark.ui.enabled": "false"}


def pipeline(
    *,
    output: Annotated[Path | None, typer.Option("--output", help="Keep the output in this directory.")] = None,
    partitions: Annotated[int, typer.Option("--partitions", help="Partitions of the topics.")] = 4,
    master: Annotated[str | None, typer.Option(help="Spark master.")] = "local[2]",
) -> None:
    """Run a demonstration: produce flights, and store the state of each aircraft in a topic and all flights in Parquet.

    At the end both are compared. With pyiceberg and duckdb installed, the flights are also written to an Iceberg table
    without Spark, and read with DuckDB.

    Requires the extras: pip install 'barnabas\\[demo,spark]'
    """
    try:
        from ...spark.session import keep_to_loopback, session
    except ImportError as error:
        raise typer.BadParameter(f"{error.name} is not installed; pip install 'barnabas[spark]'") from error
    ck, flights = require_confluent_kafka(), load_flights(_say)
    with _folder(output) as folder, import_module("barnabas").Broker() as broker:
        for topic, config in _TOPICS.items():
            broker.create_topic(topic, partitions, config)
        _say(f"broker at {broker.bootstrap}; starting Spark …")
        keep_to_loopback(master, _SETTINGS)
        spark = session(master, app_name="barnabas pipeline", config=_SETTINGS)
        spark.sparkContext.setLogLevel("ERROR")
        producing = Thread(target=_produce, args=(ck, broker.bootstrap, flights))
        producing.start()
        try:
            wrong = _stream(spark, broker.bootstrap, folder, producing, is_kept=output is not None)
            wrong += _write_iceberg(broker.bootstrap, folder, len(flights))
        finally:
            producing.join()
            spark.stop()
    if wrong:
        raise typer.Exit(1)


def _stream(spark: Any, bootstrap: str, folder: Path, producing: Thread, *, is_kept: bool) -> int:
    from ...spark.pipeline import (
        PipelineSettings,
        differences,
        keep_parquet,
        keep_state,
        state_table,
    )
    from ...spark.progress import ProgressListener

    spark.streams.addListener(ProgressListener(_say))
    settings = PipelineSettings(bootstrap, str(folder))
    queries = [keep_state(spark, settings), keep_parquet(spark, settings)]
    producing.join()
    for query in queries:
        query.processAllAvailable()
        query.stop()
    rows = spark.read.parquet(f"{settings.folder}/flights").count()
    _say(f"{rows:,} flights in Parquet" + (f" at {folder / 'flights'}" if is_kept else "; --output keeps the files"))
    _say("the busiest aircraft in their compacted topic:")
    for row in state_table(spark, settings).orderBy("flights", ascending=False).limit(5).collect():
        _say(f"  {row.tailnum}  {row.flights:>4} flights  {row.miles:>9,} miles  last seen {row.last_seen}")
    wrong = differences(spark, settings)
    if not wrong:
        _say("compared: the state of every aircraft in the topic is the sum of its flights in Parquet")
    else:
        _say(f"the state of {wrong} aircraft differs from the sum of their flights")
    return wrong


def _write_iceberg(bootstrap: str, folder: Path, expected: int) -> int:
    """Write the topic to an Iceberg table as `barnabas table follow` does, and read it with DuckDB.

    Return the number of missing or repeated flights. pyiceberg reads the files of the table for DuckDB, whose own
    extension for Iceberg has to be downloaded.
    """
    missing = [name for name in ("pyiceberg", "duckdb") if find_spec(name) is None]
    if missing:
        _say(f"no Iceberg table: {' and '.join(missing)} not installed; pip install 'barnabas[iceberg]' duckdb")
        return 0
    from ...table import FollowSettings, TableFollower, open_table
    from ...table.table_columns import ColumnSettings

    lake = folder / "lake"
    settings = FollowSettings(bootstrap, ["flights"], columns=ColumnSettings(key="string", value="string"))
    with open_table(f"iceberg:{lake}#demo.flights") as sink:
        TableFollower(sink, settings, is_stopping=lambda: False).run(once=True)
    catalog = import_module("pyiceberg.catalog.sql").SqlCatalog(
        "local", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}"
    )
    with import_module("duckdb").connect() as connection:
        connection.register("flights", catalog.load_table("demo.flights").scan().to_arrow())
        rows, distinct = connection.execute(_COUNT).fetchone()
        _say(f"{rows:,} flights in an Iceberg table, written without Spark; the busiest aircraft, by DuckDB:")
        for tail, count, miles in connection.execute(_BUSIEST).fetchall():
            _say(f"  {tail}  {count:>4} flights  {miles:>9,} miles")
    return abs(expected - int(distinct)) + int(rows) - int(distinct)


def _produce(ck: Any, bootstrap: str, flights: Sequence[Flight]) -> None:
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20}
    producer = ck.Producer({**settings, "queue.buffering.max.messages": len(flights) + 1})
    for number, flight in enumerate(flights, start=1):
        producer.produce("flights", flight.value, flight.key)
        if number % 100_000 == 0 or number == len(flights):
            producer.flush()
            _say(f"{number:,} flights produced")


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.resolve()
        return
    with TemporaryDirectory(prefix="barnabas-pipeline-") as folder:
        yield Path(folder)


def _say(text: str) -> None:
    print(text, file=sys.stdout, flush=True)
