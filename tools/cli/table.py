"""`barnabas table`: tables that follow topics, without Spark."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer
from typer.main import get_command

from ...common.room_logger import room_logger
from ...protocol.errors import KafkaError
from .client_settings import DEFAULT_BOOTSTRAP, bootstrap_servers, client_properties, parse_settings
from .reasons import reason
from .service import FILES
from .session import Bootstrap, fail

if TYPE_CHECKING:
    from ...arrow.value_types import Format

app = typer.Typer(help="Tables that follow topics: Iceberg, Delta, Parquet, DuckDB.", no_args_is_help=True)

_MMAP_THRESHOLD, _TRIM_THRESHOLD, _ARENA_MAX = (-3, 256 << 10), (-1, 256 << 10), (-8, 1)
"""Parameters of `mallopt` in glibc, and their values."""
_SIZES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_FORMATS = "binary, string, json, json:FILE, avro:FILE, protobuf:FILE#MESSAGE or registry"


@app.callback()
def table() -> None:
    """Keep tables that follow topics, without Spark or a JVM."""


@app.command()
def follow(
    topic: Annotated[list[str] | None, typer.Argument(metavar="TOPIC…", help="Topics to follow.")] = None,
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="TABLE",
            help="iceberg:///FOLDER#NAMESPACE.TABLE, iceberg://CATALOG#NAMESPACE.TABLE, delta:///FOLDER, "
            "parquet:///FOLDER, or duckdb:FILE#TABLE.",
        ),
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    pattern: Annotated[
        str | None, typer.Option("--pattern", metavar="REGEX", help="Follow all topics whose whole name matches.")
    ] = None,
    key: Annotated[str, typer.Option("--key", metavar="FORMAT", help="Format of keys, as --value.")] = "binary",
    value: Annotated[str, typer.Option("--value", metavar="FORMAT", help=f"Format of values: {_FORMATS}.")] = "binary",
    schema_registry: Annotated[
        str | None, typer.Option(metavar="URL", help="URL of the schema registry for --value registry.")
    ] = None,
    nest: Annotated[
        bool, typer.Option("--nest", help="Store values in one column instead of a column per field.")
    ] = False,
    prefix: Annotated[
        str, typer.Option("--prefix", help="Prefix of the columns key, topic, partition, offset, timestamp, headers.")
    ] = "",
    headers: Annotated[bool, typer.Option("--headers", help="Add a column with the headers.")] = False,
    upsert: Annotated[
        bool, typer.Option("--upsert", help="Keep the latest row of each key; a record without a value deletes it.")
    ] = False,
    start: Annotated[
        str,
        typer.Option(
            "--start", help="Start of a new table: earliest, latest, an offset, a time, -15m, committed:GROUP."
        ),
    ] = "earliest",
    from_folder: Annotated[
        str | None,
        typer.Option("--from-folder", metavar="PATH", help="Read these partition directories before the topics."),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="End at the log end offsets that the topics have when the command starts.")
    ] = False,
    interval: Annotated[
        float,
        typer.Option("--interval", min=0.1, help="Maximum delay in seconds until new records are visible (target)."),
    ] = 2.0,
    partition_by: Annotated[
        str | None,
        typer.Option(
            metavar="FIELDS",
            help="Partition columns, separated by commas: COLUMN, or year, month, day or hour(COLUMN).",
        ),
    ] = None,
    file_size: Annotated[
        str, typer.Option("--file-size", metavar="SIZE", help="Maximum size of a data file, for example 128m.")
    ] = "128m",
    compression: Annotated[str, typer.Option(help="zstd, snappy, lz4, gzip or none.")] = "zstd",
    merge_at: Annotated[
        int, typer.Option(min=0, help="Small files in a partition at which they are merged; 0 disables merging.")
    ] = 32,
    keep_snapshots: Annotated[
        float, typer.Option(metavar="HOURS", min=0, help="Hours after which snapshots are deleted.")
    ] = 24.0,
    on_error: Annotated[
        str,
        typer.Option(
            metavar="stop|column|topic:NAME",
            help="Action for unreadable records: stop, add columns with the reason and the bytes, or write to a topic.",
        ),
    ] = "stop",
    on_data_loss: Annotated[
        str, typer.Option(metavar="stop|continue", help="Action if records were deleted before they were read.")
    ] = "stop",
    isolation_level: Annotated[str, typer.Option(help="read_committed or read_uncommitted.")] = "read_committed",
    threads: Annotated[int, typer.Option(min=1, max=64, help="Number of threads that read.")] = 2,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="KEY=VALUE", help="A property of an Iceberg catalog; may be repeated."),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port on which metrics for Prometheus are served; none by default."),
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="Address on which the metrics are served.")] = "127.0.0.1",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print one line per commit.")] = False,
) -> None:
    """Write the records of topics to a table, each record once, and continue with new records.

    The offsets are in the table: a repeated run continues after the last commit.

    barnabas table follow orders --to iceberg:///var/lake#shop.orders --value json:orders.json
    """
    if bool(topic) == (pattern is not None):
        raise typer.BadParameter("no topics given: name topics, or use --pattern")
    has_begun = False
    # This allocator returns memory to the system, which the others keep. The variable is for Parquet and for functions
    # on columns, which do not use the pool that is set below: without it, upserts use 45 MB more.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    try:
        import pyarrow

        from ...arrow.data_loss import DataLossError
        from ...protocol.errors import ProtocolError
        from ...table import FollowSettings, TableConflictError, TableFollower, open_table
        from ...table.parquet_files import TableSettings
        from ...table.partitioning import parse_partitioning
        from ...table.table_columns import ColumnSettings
    except ModuleNotFoundError as error:
        fail(f"{error.name} is not installed: pip install 'barnabas[arrow]'")
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    _return_freed_memory()
    _log_to_stderr(verbose=verbose)
    try:
        mode, dead_letters = _parse_on_error(on_error)
        for name, given, expected in (
            ("--on-data-loss", on_data_loss, ("stop", "continue")),
            ("--isolation-level", isolation_level, ("read_committed", "read_uncommitted")),
            ("--compression", compression, ("zstd", "snappy", "lz4", "gzip", "none")),
        ):
            if given not in expected:
                raise ValueError(f"{name}: invalid value {given!r}. Expected {' or '.join(expected)}")
        columns = ColumnSettings(
            key=_parse_format("--key", key, schema_registry),
            value=_parse_format("--value", value, schema_registry),
            prefix=prefix,
            nest=nest,
            topic=pattern is not None or len(topic or ()) > 1,
            headers=headers,
            on_error=mode,  # type: ignore[arg-type]
        )
        settings = FollowSettings(
            bootstrap_servers(bootstrap),
            [pattern] if pattern is not None else list(dict.fromkeys(topic or ())),
            is_pattern=pattern is not None,
            mode="upsert" if upsert else "append",
            columns=columns,
            start=start,
            interval_s=interval,
            threads=threads,
            isolation_level=isolation_level,  # type: ignore[arg-type]
            on_data_loss=on_data_loss,  # type: ignore[arg-type]
            folder=from_folder,
            dead_letter_topic=dead_letters,
            config=client_properties(),
        )
        layout = TableSettings(
            partition_by=parse_partitioning(partition_by),
            target_bytes=_parse_size("--file-size", file_size),
            compression=compression,
            merge_at=merge_at,
            keep_snapshots_s=keep_snapshots * 3600,
            options=tuple(parse_settings(option or ()).items()),
        )
        with _StopSignals() as stop, open_table(to, layout) as sink:
            follower = TableFollower(sink, settings, is_stopping=lambda: stop.received is not None)
            if metrics_port is not None:
                port = follower.metrics.serve(metrics_host, metrics_port)
                print(f"metrics http://{metrics_host}:{port}/metrics", file=sys.stderr, flush=True)
            has_begun = True
            follower.run(once=once)
    except ValueError as error:
        fail(str(error), status=1 if has_begun else 2)
    except (KafkaError, DataLossError, TableConflictError, ProtocolError) as error:
        fail(str(error))
    except OSError as error:
        fail(reason(error))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except typer.Exit:
        raise
    except Exception as error:  # noqa: BLE001 - the libraries of the formats have classes of errors of their own
        fail(f"{to}: {' '.join(str(error).split()) or type(error).__name__}")
    if stop.received is not None:
        raise typer.Exit(128 + stop.received)
    print(f"{follower.metrics.rows:,} rows written to {to}", file=sys.stderr)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def unit(
    context: typer.Context,
    *,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="MemoryMax of the unit.")] = "1G",
) -> None:
    """Print a systemd unit that runs `table follow` with the arguments after --.

    barnabas table unit -- orders --to iceberg:///var/lake#shop.orders > ~/.config/systemd/user/orders-table.service
    """
    arguments = list(context.args)
    command = get_command(app).commands["follow"]  # type: ignore[attr-defined]
    given = command.make_context("follow", list(arguments)).params
    if given["once"]:
        raise typer.BadParameter("--once: not supported in a unit, whose follower runs until it is stopped")
    servers = bootstrap_servers(given["bootstrap"])
    if "-b" not in arguments and not any(one.startswith("--bootstrap-server") for one in arguments):
        arguments += ["--bootstrap-server", servers]
    program = Path(sys.executable).parent / "barnabas"
    words = " ".join(_unit_word(word) for word in (str(program), "table", "follow", *arguments))
    typer.echo(
        (FILES / "barnabas-table.service").read_text(encoding="utf-8").format(command=words, memory=memory), nl=False
    )


def _unit_word(text: str) -> str:
    """Return an argument as a word of a unit: systemd replaces % and $, and splits words at blanks."""
    escaped = text.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$").replace('"', '\\"')
    return f'"{escaped}"' if not text or any(one.isspace() or one in "'\";#" for one in text) else escaped


class _StopSignals:
    """Remembers the first SIGTERM, SIGINT or SIGHUP, after which the follower commits and ends.

    A second signal has its usual effect.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # else the command is part of a larger program
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: object) -> None:
        self.received = number
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def _return_freed_memory() -> None:
    """Make glibc return the memory of freed rows to the system: 90 MB less for upserts.

    By default it keeps freed blocks of up to 32 MB, in up to eight arenas per processor.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        for parameter, value in (_MMAP_THRESHOLD, _TRIM_THRESHOLD, _ARENA_MAX):
            library.mallopt(parameter, value)


def _log_to_stderr(*, verbose: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    for room in ("table", "arrow"):
        logger = room_logger(room)
        logger.addHandler(handler)
        logger.setLevel(logging.INFO if verbose else logging.WARNING)


def _parse_on_error(text: str) -> tuple[str, str | None]:
    if text in ("stop", "column"):
        return text, None
    kind, _, name = text.partition(":")
    if kind == "topic" and name:
        return "topic", name
    raise ValueError(f"--on-error: invalid value {text!r}. Expected stop, column or topic:NAME")


def _parse_size(option: str, text: str) -> int:
    number, unit = (text[:-1], text[-1].lower()) if text[-1:].lower() in _SIZES else (text, "")
    if not number.isdecimal() or not 1 <= int(number) * _SIZES.get(unit, 1) <= 1 << 40:
        raise ValueError(f"{option}: invalid size {text!r}. Expected a size such as 128m")
    return int(number) * _SIZES.get(unit, 1)


def _parse_format(option: str, text: str, registry: str | None) -> Format:
    """Parse the format of keys or values. Raises ValueError, OSError."""
    from ...arrow import Avro, Json, Protobuf, RegistryValues
    from ...arrow.avro_types import avro_type
    from ...arrow.value_formats import parse_avro_schema

    if text in ("binary", "string", "json"):
        return text
    if text == "registry":
        if registry is None:
            raise ValueError(f"{option} registry requires --schema-registry")
        return RegistryValues(registry)
    kind, _, file = text.partition(":")
    if kind == "avro" and file:
        return Avro(Path(file).read_text())
    if kind == "protobuf" and file:
        path, _, message = file.partition("#")
        schema: Any = Path(path).read_bytes() if path.endswith(".desc") else Path(path)
        return Protobuf(schema, message or None)
    if kind == "json" and file:
        # The columns of JSON values are a record of Avro, whose types have names that engines of tables share.
        schema = Path(file).read_text()
        try:
            json.loads(schema)
        except ValueError as error:
            raise ValueError(f"{file}: invalid JSON: {error}") from None
        return Json(avro_type(parse_avro_schema(schema)))
    raise ValueError(f"{option}: invalid format {text!r}. Expected {_FORMATS}")
