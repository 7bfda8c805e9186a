"""`barnabas spark`: Spark jobs over topics and segment directories of any size."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ...protocol.errors import KafkaError
from ...spark.error_messages import error_reason
from .client_settings import parse_settings
from .pipeline import pipeline
from .reasons import reason
from .session import Bootstrap, fail, print_json, print_rows
from .spark_output import KEEP_VERSIONS, check_output, written

app = typer.Typer(
    help="Run Spark jobs over topics and segment files, on this machine or on a cluster (--master).",
    no_args_is_help=True,
)

Master = Annotated[str | None, typer.Option(help="Spark master; by default from Spark's configuration, else local[*].")]
Conf = Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Spark setting; may be repeated.")]
Option = Annotated[
    list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="Option of the source; may be repeated.")
]
From = Annotated[
    str | None,
    typer.Option("--path", help="Read the partition directories at this path instead of a topic."),
]
Topic = Annotated[str | None, typer.Option("--topic", help="Topics to read, separated by commas.")]
WriteOption = Annotated[
    list[str] | None,
    typer.Option("--write-option", metavar="KEY=VALUE", help="Option of Spark's writer; may be repeated."),
]
Output = Annotated[str, typer.Option("--output", help="Output path.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace existing output that this command has written completely.")
]
MaybeBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server", "-b", envvar="BARNABAS_BOOTSTRAP_SERVER", metavar="HOST:PORT,…", help="Brokers."
    ),
]


@contextmanager
def _session(master: str | None, conf: list[str] | None) -> Iterator[Any]:
    """Return a session with Spark's progress bar on stderr, and stop it if it was started here. Errors become one
    line.
    """
    try:
        from ...spark.session import active_session, keep_to_loopback, session
    except ImportError as error:
        fail(f"{error.name} is not installed; pip install 'barnabas[spark]'")
    is_own = active_session() is None
    shown = {"spark.ui.showConsoleProgress": "true", "spark.sql.streaming.numRecentProgressUpdates": "100000"}
    config = shown | parse_settings(conf or ())
    keep_to_loopback(master, config)
    spark = session(master, app_name="barnabas spark", config=config)
    spark.sparkContext.setLogLevel("OFF" if is_own else "ERROR")
    try:
        yield spark
    except typer.Exit:
        raise
    except Exception as error:  # noqa: BLE001 - the command ends with the reason instead of two tracebacks
        fail(reason(error) if isinstance(error, OSError) else plain_error(error))
    finally:
        if is_own:
            spark.stop()


def plain_error(error: Exception) -> str:
    """Return the message of a Spark error in one line."""
    return error_reason(str(error)) or type(error).__name__


def check_source(bootstrap: str | None, topic: str | None, path: str | None, options: list[str] | None) -> None:
    """Exit unless the input exists, before Spark starts, which takes ten times as long."""
    named = parse_settings(options or ())
    try:
        from ...spark.check import check_folders, check_topics
    except ImportError as error:
        fail(f"{error.name} is not installed; pip install 'barnabas[spark]'")
    try:
        if path is not None:
            check_folders(path, topic, named)
        elif topic is not None and bootstrap is not None:
            check_topics(bootstrap, topic, named)
    except (KafkaError, OSError, ValueError) as error:
        fail(reason(error))


def _records(spark: Any, bootstrap: str | None, topic: str | None, path: str | None, options: list[str] | None) -> Any:
    """Read records of a topic, or of directories if a path is given."""
    from ...spark import jobs

    named = parse_settings(options or ())
    if path is not None:
        return jobs.log_records(spark, path, topic, named)
    if topic is None or bootstrap is None:
        raise typer.BadParameter("no input given: use --path, or --topic and --bootstrap-server")
    return jobs.topic_records(spark, bootstrap, topic, named)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@app.command()
def compact(
    *,
    output: Output,
    overwrite: Overwrite = False,
    path: From = None,
    topic: Topic = None,
    bootstrap_server: MaybeBootstrap = None,
    drop_tombstones: Annotated[bool, typer.Option(help="Omit keys whose last record has no value.")] = False,
    file_format: Annotated[str, typer.Option("--format", help="segments, or parquet, orc, …")] = "segments",
    compression: Annotated[str, typer.Option(help="none, gzip, snappy, lz4 or zstd, for segments.")] = "none",
    master: Master = None,
    conf: Conf = None,
    option: Option = None,
) -> None:
    """Keep the latest record of every key, as the log cleaner does."""
    check_output(output, overwrite=overwrite)
    check_source(bootstrap_server, topic, path, option)
    with _session(master, conf) as spark:
        from ...spark import jobs

        records = _records(spark, bootstrap_server, topic, path, option)
        with written(output, overwrite=overwrite) as place:
            jobs.compact(
                records, place, drop_tombstones=drop_tombstones, file_format=file_format, compression=compression
            )
    _tell(f"compacted into {output}")


@app.command()
def table(
    *,
    output: Output,
    overwrite: Overwrite = False,
    path: From = None,
    topic: Topic = None,
    bootstrap_server: MaybeBootstrap = None,
    file_format: Annotated[str, typer.Option("--format", help="parquet, orc, delta, iceberg, …")] = "parquet",
    write_option: WriteOption = None,
    master: Master = None,
    conf: Conf = None,
    option: Option = None,
) -> None:
    """Write the latest value of every key of a topic as a table."""
    if not overwrite or file_format not in KEEP_VERSIONS:
        check_output(output, overwrite=overwrite)
    check_source(bootstrap_server, topic, path, option)
    with _session(master, conf) as spark:
        from ...spark import jobs

        rows = jobs.table(_records(spark, bootstrap_server, topic, path, option))
        writer = rows.write.format(file_format).options(**parse_settings(write_option or ()))
        if file_format in KEEP_VERSIONS:
            _write_version(writer, output, overwrite=overwrite)
        else:
            with written(output, overwrite=overwrite) as place:
                writer.save(place)
    _tell(f"latest values written to {output}")


def _write_version(writer: Any, output: str, *, overwrite: bool) -> None:
    """Write a table, or with `overwrite` a new version of the existing table."""
    from pyspark.errors import AnalysisException

    if overwrite:
        try:
            writer.mode("overwrite").save(output)
            return
        except AnalysisException as error:
            if (
                error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND"
            ):  # Iceberg's error at the first write; Delta creates the table
                raise
    writer.mode("errorifexists").save(output)


@app.command()
def export(
    *,
    topic: Annotated[str, typer.Option("--topic", help="Topics to read, separated by commas.")],
    output: Output,
    bootstrap_server: Bootstrap,
    every: Annotated[
        str | None, typer.Option(help='Keep running, and write a batch at this interval, such as "1 minute".')
    ] = None,
    batch_bytes: Annotated[
        int | None,
        typer.Option(
            help="Approximate size of a batch, and of an output file, in bytes. Default: 256 MB, for Iceberg 8 GB."
        ),
    ] = None,
    file_format: Annotated[str, typer.Option("--format", help="parquet, orc, delta or iceberg.")] = "parquet",
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="FIELDS", help='Iceberg: the fields of values as columns, such as "tail string, delay int".'
        ),
    ] = None,
    write_option: WriteOption = None,
    master: Master = None,
    conf: Conf = None,
    option: Option = None,
) -> None:
    """Write the records of topics as a table, each once. A repeated run continues after the last record.

    `barnabas table follow` continues a table of Parquet, Delta or Iceberg without Spark.
    """
    if file_format == "iceberg" and (every is not None or write_option):
        raise typer.BadParameter(
            "--format iceberg does not support --every and --write-option. Use `barnabas table follow`"
        )
    if file_format != "iceberg" and columns is not None:
        raise typer.BadParameter("--columns requires --format iceberg")
    check_source(bootstrap_server, topic, None, option)
    with _session(master, conf) as spark:
        from ...spark import jobs

        if file_format == "iceberg":
            from ...spark.jobs.iceberg import IcebergSettings

            size = {} if batch_bytes is None else {"batch_bytes": batch_bytes}
            iceberg = IcebergSettings(value_columns=columns, options=parse_settings(option or ()), **size)
            rows = jobs.append_to_iceberg(spark, bootstrap_server, topic, output, iceberg)
            _tell(f"{rows:,} records written to {output}")
            return
        from ...spark.jobs.export import ExportSettings
        from ...spark.progress import ProgressListener

        listener = ProgressListener(_tell)
        spark.streams.addListener(listener)
        write_options = parse_settings(write_option or ())
        settings = ExportSettings(
            every, batch_bytes or 256 << 20, parse_settings(option or ()), file_format, write_options
        )
        query = jobs.export(spark, bootstrap_server, topic, output, settings)
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            query.stop()
        finally:
            spark.streams.removeListener(listener)
        rows = sum(progress.numInputRows for progress in query.recentProgress)
    _tell(f"{rows:,} records written to {output}")


@app.command()
def replay(
    *,
    source: Annotated[str, typer.Option("--input", help="Parquet output of export.")],
    topic: Annotated[str, typer.Option("--topic", help="Output topic.")],
    bootstrap_server: Bootstrap,
    keep_partitions: Annotated[bool, typer.Option(help="Write each record to its former partition.")] = False,
    create_topic: Annotated[
        int | None, typer.Option(min=1, help="Create a missing topic with this number of partitions.")
    ] = None,
    write_id: Annotated[
        str | None, typer.Option(help="Identifier of this run: a repeated run with the same id writes no record twice.")
    ] = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Write the Parquet output of export to a topic."""
    options = {} if write_id is None else {"delivery": "exactly-once", "writeId": write_id}
    if create_topic is None:
        check_source(bootstrap_server, topic, None, None)
    else:
        options["createTopic"] = str(create_topic)
    with _session(master, conf) as spark:
        from ...spark import jobs

        records = spark.read.parquet(source)
        jobs.replay(records, bootstrap_server, topic, keep_partitions=keep_partitions, options=options)
    _tell(f"{source} written to topic {topic}")


@app.command()
def audit(
    *,
    path: From = None,
    topic: Topic = None,
    bootstrap_server: MaybeBootstrap = None,
    output: Annotated[
        str | None, typer.Option("--output", help="Write Parquet to this path instead of printing a table.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    master: Master = None,
    conf: Conf = None,
    option: Option = None,
) -> None:
    """Count records, keys, duplicate keys, tombstones, offset gaps and damaged batches of each partition."""
    if output is not None:
        check_output(output, overwrite=overwrite)
    check_source(bootstrap_server, topic, path, option)
    options = ["onCorrupt=report", *(option or ())] if path is not None else option
    with _session(master, conf) as spark:
        from ...spark import jobs

        found = jobs.audit(_records(spark, bootstrap_server, topic, path, options))
        if output is not None:
            with written(output, overwrite=overwrite) as place:
                found.write.parquet(place)
            _tell(f"written to {output}")
            return
        # Spark formats times, since Python does not support years after 9999.
        as_text = found.withColumns({name: found[name].cast("string") for name in ("earliest", "latest")})
        rows = [row.asDict() for row in as_text.toLocalIterator()]
        if as_json:
            print_json(rows, own_keys=False)
        else:
            print_rows(rows)


app.command(name="pipeline")(pipeline)
