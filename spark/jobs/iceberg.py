"""Topics into an Iceberg table with the bookkeeping of `barnabas table follow`, so that either continues the other.

The offsets are in the summary of each snapshot, which Spark commits together with the data files. There is no
checkpoint: a job that is repeated continues after the last commit, and a failed job leaves no rows after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession, functions

from ...arrow.client import BlockingClient
from ...arrow.data_loss import DataLossError
from ...protocol.special_timestamps import EARLIEST
from ..admission import admit
from ..batch_reader import sizes_per_record
from ..offsets import Offsets, StreamOffsets, to_json
from ..options import Bound, OffsetBound, RateLimits, parse_source_options
from ..resolve import discover, resolve

_OFFSETS = "barnabas.offsets"
_START_OPTIONS = frozenset({"startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp"})
_PROPERTIES = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "20"}
"""As for a table that the follower creates, with a commit every few seconds later on."""


@dataclass(frozen=True)
class IcebergSettings:
    """`batch_bytes` is the approximate size of the records of one commit. `options` are options of the source.

    `value_columns` are the fields of values with their types, such as `tail string, delay int`, which become columns;
    None for one column `value`.
    """

    batch_bytes: int = 8 << 30
    value_columns: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


class TableState(NamedTuple):
    """The current snapshot of a table and its parent, its offsets, and the number of rows that it has added."""

    snapshot: int | None = None
    parent: int | None = None
    offsets: StreamOffsets | None = None
    added: int = 0


def append_to_iceberg(
    spark: SparkSession, bootstrap_servers: str, topics: str, table: str, settings: IcebergSettings | None = None
) -> int:
    """Append the records of topics up to their present ends, each record once, and return the number of rows.

    Needs no shuffle.

    The columns are the same as with `barnabas table follow`. Only one program may write to the table at a time. Raises
    DataLossError if a topic was deleted and created again, and RuntimeError if another program has committed during
    the job.
    """
    settings = settings or IcebergSettings()
    options = {"kafka.isolation.level": "read_committed", **settings.options}
    options |= {"kafka.bootstrap.servers": bootstrap_servers}
    if ends := sorted(name for name in settings.options if name.lower().startswith("ending")):
        raise ValueError(f"{', '.join(ends)}: not supported for Iceberg. An export ends at the current log end offsets")
    state = read_state(spark, table)
    plan = _Plan(options, topics, state.offsets, settings.batch_bytes)
    # Bounds by time have priority over bounds by offset: with them each batch would begin at the same offsets.
    options = {name: value for name, value in options.items() if name.lower() not in _START_OPTIONS}
    rows = 0
    for begin, end in plan.batches():
        selected = {**options, "assign": json.dumps(plan.assignment)}
        selected |= {"startingOffsets": json.dumps(to_json(begin)), "endingOffsets": json.dumps(to_json(end))}
        records = _records(spark, selected, settings.value_columns, has_topic=plan.has_topic)
        if state.snapshot is None:
            _create(spark, table, records)
        text = json.dumps(plan.offsets_at(end).to_json(), separators=(",", ":"))
        _with_columns_of(spark, table, records).writeTo(table).option(f"snapshot-property.{_OFFSETS}", text).append()
        before, state = state, read_state(spark, table)
        if state.parent != before.snapshot:
            raise RuntimeError(
                f"{table}: another program has committed during the job, so that the table may have records twice. "
                f"{_remedy(before)}, and let one program write at a time"
            )
        # The follower reads the property if other programs have expired the snapshot.
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('{_OFFSETS}' = '{text}')")
        rows += state.added
    return rows


def _remedy(before: TableState) -> str:
    return "Drop it" if before.snapshot is None else f"Roll it back to snapshot {before.snapshot}"


def read_state(spark: SparkSession, table: str) -> TableState:
    """Return the state of a table; without a snapshot if the table is empty or does not exist.

    Raises ValueError if another program has written it.
    """
    if not spark.catalog.tableExists(table):
        return TableState()
    spark.sql(f"REFRESH TABLE {table}")
    current = spark.table(f"{table}.refs").where("name = 'main'").collect()
    if not current:
        return TableState()
    summary = functions.col("summary")
    columns = [summary[_OFFSETS].alias("offsets"), summary["added-records"].alias("added")]
    rows = spark.table(f"{table}.snapshots").select("snapshot_id", "parent_id", *columns).collect()
    snapshots = {row.snapshot_id: row for row in rows}
    top = one = snapshots[current[0].snapshot_id]
    while one is not None and one.offsets is None:
        one = snapshots.get(one.parent_id)
    text = one.offsets if one is not None else _property(spark, table)
    if text is None:
        raise ValueError(f"{table}: the Iceberg table was not written by Barnabas")
    return TableState(top.snapshot_id, top.parent_id, StreamOffsets.of_json(json.loads(text)), int(top.added or 0))


def _property(spark: SparkSession, table: str) -> str | None:
    rows = spark.sql(f"SHOW TBLPROPERTIES {table}").collect()
    return next((row.value for row in rows if row.key == _OFFSETS), None)


class _Plan:
    """The offsets of the batches of a job. Raises ValueError, DataLossError, KafkaError."""

    def __init__(self, options: Mapping[str, str], topics: str, known: StreamOffsets | None, batch_bytes: int) -> None:
        parsed = parse_source_options({**options, "subscribe": topics}, streaming=False)
        self._known = known or StreamOffsets()
        self._limits = RateLimits(max_bytes=batch_bytes)
        self.has_topic = len(parsed.subscription.names) > 1
        """Whether the table has a column with the topic, as that of a follower of several topics."""
        with BlockingClient(parsed.client) as client:
            partitions = discover(client, parsed.subscription)
            self._ids = client.topic_ids({tp.topic for tp in partitions})
            for topic, topic_id in self._ids.items():
                if self._known.is_recreated(topic, topic_id):
                    raise DataLossError(
                        f"topic {topic!r} was deleted and created again. Write the new topic to a new table"
                    )
            new = [tp for tp in partitions if tp not in self._known.offsets]
            starting = parsed.starting if known is None else OffsetBound(Bound.EARLIEST)
            first = resolve(client, new, starting, strict=parsed.strict_timestamps, option="startingOffsets")
            firsts = client.find_offsets(dict.fromkeys(partitions, EARLIEST))
            self._ends = resolve(client, partitions, OffsetBound(Bound.LATEST), strict=False, option="endingOffsets")
            self._averages = sizes_per_record(client, partitions, self._ends)
        # Retention may have deleted records since `first` was determined.
        new_begin = {tp: max(offset, firsts[tp]) for tp, offset in first.items()}
        self._begin: Offsets = {tp: self._known.offsets.get(tp, new_begin.get(tp, 0)) for tp in partitions}
        for tp, offset in self._begin.items():
            if not firsts[tp] <= offset <= self._ends[tp]:
                raise DataLossError(
                    f"{tp}: the log has offsets {firsts[tp]} to {self._ends[tp]}, and the table continues at {offset}"
                )

    @property
    def assignment(self) -> dict[str, list[int]]:
        """Return the partitions as the option `assign` has them."""
        found: dict[str, list[int]] = {}
        for tp in self._begin:
            found.setdefault(tp.topic, []).append(tp.partition)
        return found

    def batches(self) -> Iterator[tuple[Offsets, Offsets]]:
        """Yield the first offsets of each batch, and the offsets after it."""
        begin = self._begin
        while begin != self._ends:
            end = admit(begin, self._ends, self._limits, self._averages)
            yield begin, end
            begin = end

    def offsets_at(self, end: Offsets) -> StreamOffsets:
        """Return the offsets of the table after a batch, and the offsets of partitions that the job does not read."""
        return StreamOffsets({**self._known.offsets, **end}, {**self._known.topic_ids, **self._ids})


def _records(
    spark: SparkSession, options: Mapping[str, str], value_columns: str | None, *, has_topic: bool
) -> DataFrame:
    names = ["partition", "offset", "timestamp", "key"]
    names = (["topic"] if has_topic else []) + names
    if options.get("includeHeaders") == "true":
        names.append("headers")
    reader = spark.read.format("barnabas").options(**options)
    if value_columns is None:
        return reader.load().select(*names, "value")
    types = {"partition": "int", "offset": "bigint", "timestamp": "timestamp", "topic": "string"}
    types["key"] = "string" if options.get("keyFormat") == "string" else "binary"
    types["headers"] = "array<struct<key: string, value: binary>>"
    schema = ", ".join(f"{name} {types[name]}" for name in names)
    return reader.schema(f"{schema}, value struct<{value_columns}>").load().select(*names, "value.*")


def _create(spark: SparkSession, table: str, records: DataFrame) -> None:
    """Create an empty table, which has no snapshot yet, unless it exists."""
    if namespace := table.rpartition(".")[0]:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
    columns = ", ".join(f"`{one.name}` {one.dataType.simpleString()}" for one in records.schema)
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in _PROPERTIES.items())
    spark.sql(f"CREATE TABLE IF NOT EXISTS {table} ({columns}) USING iceberg TBLPROPERTIES ({properties})")


def _with_columns_of(spark: SparkSession, table: str, records: DataFrame) -> DataFrame:
    """Return the records with null in the columns that only the table has."""
    missing = [one for one in spark.table(table).schema if one.name not in records.columns]
    return records.withColumns({one.name: functions.lit(None).cast(one.dataType) for one in missing})
