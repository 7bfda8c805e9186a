"""The follower: reads topics, and commits rows with their offsets to a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NoReturn, TypeVar

import numpy as np
import pyarrow as pa
from pyarrow import compute

from ..arrow.client import BlockingClient, ClientSettings
from ..arrow.data_loss import DataLossError
from ..arrow.group_offsets import fetch_offsets
from ..arrow.offset_range import OffsetRange
from ..arrow.positions import OffsetLookups, Position, resolve_positions
from ..arrow.record_stream import RecordSource
from ..arrow.topic_source import TopicSource
from ..arrow.value_types import RegistryValues
from ..common.room_logger import room_logger
from ..protocol.errors import KafkaError
from ..protocol.special_timestamps import EARLIEST, LATEST
from ..protocol.topic_partition import TopicPartition
from . import host
from .commit_schedule import CommitSchedule
from .dead_letters import DeadLetterWriter
from .folder_backfill import FolderBackfill
from .metrics import FollowerMetrics
from .offsets import TableOffsets
from .partitioning import PartitionTimeError
from .round_reader import read_round
from .sink import MOST_BYTES, TableConflictError, TableSink
from .table_columns import ColumnSettings, TableColumns
from .table_types import fit_batch
from .topic_names import TopicNames

logger = room_logger("table")

_FIRST_RECORDS = 200_000
_MOST_RECORDS = 20_000_000
_HELD_BYTES = 48 << 20
"""Maximum of the rows of an upsert, and of unreadable records for a topic, which are in memory until the commit."""
_KEY_BYTES = 100
"""Memory of an upsert for each row in addition to the row: its key in the arrays and hash tables that find it."""
_MERGE_SHARE = 0.1
"""Part of the interval that is used for merges of small files if commits leave no time."""
_POLL_S = 0.2
_RETRY_S = 1.0
_BEHIND_S = 15.0
"""Seconds for which a log may end before the offsets of the table: a leader that has just been elected may not have its
final high watermark yet."""
_LETTERS_S = 1.0
"""Seconds after a signal for which the acknowledgements of unreadable records are awaited before a commit."""
CLIENT_ID = "barnabas-table"

T = TypeVar("T")


@dataclass(frozen=True)
class FollowSettings:
    """The topics, and the settings of reads and commits.

    `topics` are names, or with `is_pattern` one regular expression. `interval_s` is the time in seconds in which new
    records become visible in the table, `most_bytes` the maximum of decoded bytes of one commit. `start` is the
    position at which a new table begins; partitions that are added later begin at their first record. `folder` has
    partition directories that are read before the topics.
    """

    bootstrap: str
    topics: Sequence[str]
    is_pattern: bool = False
    mode: Literal["append", "upsert"] = "append"
    columns: ColumnSettings = field(default_factory=ColumnSettings)
    start: Position = "earliest"
    interval_s: float = 2.0
    most_bytes: int = MOST_BYTES
    threads: int = 2
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    on_data_loss: Literal["stop", "continue"] = "stop"
    folder: str | None = None
    dead_letter_topic: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def client_settings(self) -> ClientSettings:
        """Return the settings of the readers. Small fetches keep the memory of a thread small."""
        small = {"max.partition.fetch.bytes": str(2 << 20)}
        return ClientSettings(
            self.bootstrap, {**small, **self.config, "isolation.level": self.isolation_level}, CLIENT_ID
        )


class TableFollower:
    """The loop that reads the records up to the current end of each partition and commits them; used by one thread.

    The offsets are in the table itself: rows and offsets become visible in one commit. After a crash the follower
    continues at the offsets of the last commit, so that each record is in the table once.
    """

    def __init__(
        self,
        sink: TableSink,
        settings: FollowSettings,
        *,
        is_stopping: Callable[[], bool],
        metrics: FollowerMetrics | None = None,
    ) -> None:
        if settings.mode == "upsert" and (settings.is_pattern or len(settings.topics) != 1):
            raise ValueError("upsert requires one topic, whose keys are the keys of the table")
        self._sink = sink
        self._settings = settings
        self._is_stopping = is_stopping
        self.metrics = metrics or FollowerMetrics()
        self._fail = settings.on_data_loss == "stop"
        self._client = BlockingClient(settings.client_settings)
        if settings.dead_letter_topic is not None and settings.dead_letter_topic in settings.topics:
            raise ValueError(f"topic {settings.dead_letter_topic!r} is followed, and cannot be the dead-letter topic")
        self._names = TopicNames(
            self._client, settings.topics, is_pattern=settings.is_pattern, without=settings.dead_letter_topic
        )
        self._source = TopicSource(settings.client_settings, fail_on_data_loss=self._fail)
        self._letters = DeadLetterWriter(settings) if settings.dead_letter_topic is not None else None
        self._table = TableOffsets()
        self._committed = TableOffsets()
        """The offsets in the table, from which `_table` differs after records were lost."""
        self._is_new = True
        self._records = _FIRST_RECORDS
        self._columns: TableColumns | None = None
        self._schema: Any = None
        self._schedule = CommitSchedule(settings.interval_s)
        self._behind_since: float | None = None
        self._looked_up: dict[TopicPartition, int] = {}

    def run(self, *, once: bool = False) -> None:
        """Follow until `is_stopping`, or with `once` up to the ends that the topics have now.

        When `is_stopping`, the records of the current round that have been read are committed, and no other wait for a
        broker or a registry is continued.

        Raises DataLossError for records that no longer exist, ValueError for an unreadable record or an invalid
        setting, KafkaError if the cluster does not respond at the start, and the errors of the table's format.
        """
        with closing(self._client):
            try:
                self._run(once=once)
            except host.StoppedError:
                self._discard()

    def _run(self, *, once: bool) -> None:
        self._load()
        self._wait_for(partial(self._names.refresh, force=True))
        self._check_ids()
        if self._settings.folder is not None and self._names.found:
            self._backfill(self._settings.folder)
        ends: Mapping[TopicPartition, int] | None = None
        while not self._is_stopping():
            try:
                ends = self._step(once=once, ends=ends)
                if once and ends is None:
                    return
            except (KafkaError, _RegistryError) as error:
                if isinstance(error, KafkaError) and not error.code.retriable:
                    raise
                logger.warning("cannot read: %s; trying again", error)
                self._discard()
                self._pause(_RETRY_S)

    def _wait_for(self, function: Callable[[], T], *, patience_s: float = 0.0) -> T:
        """Return the result of a function that waits for brokers or a registry. Raises StoppedError after a signal.

        The function must not use the table: it may be abandoned at any point.
        """
        return host.call_until(self._is_stopping, function, patience_s=patience_s, interrupt=self._client.interrupt)

    # The table

    def _load(self) -> None:
        found = self._sink.load()
        self._is_new = found is None
        self._table = self._committed = found or TableOffsets()
        if found is not None:
            logger.info("the table continues at %s", found.to_text())

    def _check_ids(self) -> None:
        ids = self._client.topic_ids(self._names.found)
        for topic in self._table.find_recreated(ids):
            raise DataLossError(
                f"topic {topic!r} was deleted and created again: its id is {ids[topic]}, and the table follows the "
                f"topic with id {self._table.topic_ids[topic]}. Follow the new topic with a new table"
            )

    def _refresh_columns(self) -> TableColumns:
        """Return the columns; with a registry, by its latest schemas.

        `_step` finds the ends of the partitions before this, and a serializer registers a schema before it writes a
        record with it: the latest schema is therefore not older than that of any record before the ends.
        """
        columns, settings = self._columns, self._settings.columns
        is_registered = isinstance(settings.value, RegistryValues) and settings.value.type is None
        if columns is None or is_registered:
            try:
                fresh = self._wait_for(partial(TableColumns, settings, self._names.found, self._sink.schema()))
            except OSError as error:
                if columns is None:
                    raise
                raise _RegistryError(str(error)) from None
            if columns is None or fresh.layout != columns.layout:
                if fresh.renames:
                    self._sink.rename(fresh.renames)
                    for one in fresh.renames:
                        logger.info("%s", one)
                self._schema = self._sink.prepare(fresh.merged(self._sink.schema()))
                self._columns = columns = fresh
        return columns

    # A round

    def _step(self, *, once: bool, ends: Mapping[TopicPartition, int] | None) -> Mapping[TopicPartition, int] | None:
        """Commit the records that exist now, or wait; return the ends to pass to the next step.

        With `once` these are the ends of the first step, and None as soon as they are reached.
        """
        self._wait_for(self._names.refresh)
        self._check_ids()
        partitions = self._names.partitions()
        began = host.monotonic()
        now = self._ends(partitions)
        if not once or ends is None:
            ends = now
        offsets = self._positions(partitions, now)
        self.metrics.show_lag({tp: now[tp] - offset for tp, offset in offsets.items()})
        ranges = [
            OffsetRange(tp, offset, min(ends.get(tp, offset), now[tp]), self._client.cluster.topic_id(tp.topic))
            for tp, offset in offsets.items()
        ]
        ranges = [r for r in ranges if r.records > 0]
        if not ranges:
            if once and self._behind_since is None:
                return None
            if once or not self._maintain():
                self._pause(_POLL_S)
            return ends
        wait = self._schedule.next_begin() - host.monotonic()
        if wait > 0 and not once and sum(r.records for r in ranges) < self._records:
            self._pause(min(wait, _POLL_S))
            return ends
        self._round(self._source, ranges)
        is_complete = all(self._table.offsets.get(r.partition, 0) >= r.end for r in ranges)
        self._schedule.add(began, host.monotonic(), is_complete=is_complete)
        if not once and not self._is_stopping():
            self._maintain()
        return ends

    def _ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return self._find_offsets(partitions, LATEST)

    def _find_offsets(self, partitions: Sequence[TopicPartition], place: int) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        return self._wait_for(partial(self._client.find_offsets, dict.fromkeys(partitions, place)))

    def _positions(
        self, partitions: Sequence[TopicPartition], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the next offset of each partition. Raises DataLossError if that offset no longer exists.

        With `on_data_loss="continue"` the error is a warning, and reading continues at the first offset that exists.
        """
        known = dict(self._table.offsets)
        new = [tp for tp in partitions if tp not in known and tp not in self._looked_up]
        if new:
            self._looked_up |= self._begin_at(new)
        firsts = self._find_offsets(partitions, EARLIEST)
        found, is_behind = {}, False
        for tp in partitions:
            offset = known.get(tp, self._looked_up.get(tp, 0))
            if firsts[tp] > offset:
                self._lose(
                    f"{tp}: offsets {offset} to {firsts[tp] - 1} were deleted, for example by retention, before they "
                    f"were read: the log starts at {firsts[tp]}"
                )
                offset = firsts[tp]
                self._table = self._moved(tp, offset)
            elif ends[tp] < offset:
                is_behind = True
                if self._behind_since is not None and host.monotonic() > self._behind_since + _BEHIND_S:
                    self._lose(f"{tp}: the log ends at offset {ends[tp]}, before offset {offset} of the table")
                    self._table = self._moved(tp, ends[tp])
            found[tp] = offset
        if not is_behind:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = host.monotonic()
        return found

    def _moved(self, tp: TopicPartition, offset: int) -> TableOffsets:
        return TableOffsets({**self._table.offsets, tp: offset}, self._table.topic_ids)

    def _lose(self, what: str) -> None:
        if self._fail:
            raise DataLossError(f"{what}. Use --on-data-loss continue to continue without these records")
        logger.warning("%s; continuing without these records", what)

    def _begin_at(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset to read of new partitions: by `start` if the table is new, otherwise the earliest."""
        start = self._settings.start if self._is_new else "earliest"
        lookups = OffsetLookups(self._client.find_offsets, partial(fetch_offsets, self._client))
        found = self._wait_for(
            lambda: resolve_positions(start, partitions, lookups, name="start", default="earliest", now_ms=host.now_ms)
        )
        if self._is_new and start != "earliest":
            # Otherwise a follower that ends before its first commit would resolve `start` again, and skip records.
            self._refresh_columns()
            self._commit(found)
        return found

    def _round(self, source: RecordSource, ranges: Sequence[OffsetRange]) -> None:
        """Read up to `self._records` records of these ranges and commit them.

        Raises KafkaError, DataLossError, _RegistryError, ValueError, and the errors of the table's format.
        """
        began = host.monotonic()
        columns = self._refresh_columns()
        limited = _limited(ranges, self._records)
        offsets: dict[TopicPartition, int] = {}
        size = rejected = 0
        upserted: list[Any] = []
        is_upsert = self._settings.mode == "upsert"
        limits = (self._settings.most_bytes, self._sink.most_bytes, _HELD_BYTES if is_upsert else MOST_BYTES)
        most_bytes = min(limits)
        rounds = read_round(source, limited, columns, threads=self._settings.threads, is_stopping=self._is_stopping)
        is_registered = isinstance(self._settings.columns.value, RegistryValues)
        is_reading = True
        try:
            for found in rounds:
                is_reading = False
                offsets[found.partition] = found.behind
                if found.rejected is not None and self._letters is not None:
                    self._letters.add(found.rejected)
                    rejected += found.rejected.nbytes
                if found.rows is not None and found.rows.num_rows:
                    batch = fit_batch(found.rows, self._schema)
                    size += batch.nbytes
                    if is_upsert:
                        upserted.append(batch.append_column("#value", pa.array(found.has_value)))
                        size += batch.num_rows * _KEY_BYTES
                    else:
                        self._write(batch, found.partition)
                if size + rejected > most_bytes or rejected > _HELD_BYTES or self._is_stopping():
                    break
                is_reading = True
        except OSError as error:
            self._discard()
            if is_reading and is_registered and source is self._source:
                raise _RegistryError(str(error)) from None
            raise
        except DataLossError as error:
            self._discard()
            self._explain(error)
        except BaseException:
            self._discard()
            raise
        finally:
            rounds.close()  # type: ignore[attr-defined]
        if not offsets:
            return
        if upserted:
            self._upsert(upserted)
        if self._letters is not None:
            self.metrics.show_rejected(self._wait_for(self._letters.flush, patience_s=_LETTERS_S))
        self._commit(offsets)
        took = host.monotonic() - began
        read = sum(offsets[r.partition] - r.start for r in limited if r.partition in offsets)
        if took > 0 and read >= self._records / 2:
            # A commit of a backlog takes about as long as the interval between other commits.
            aim = int(read / took * max(self._settings.interval_s, 0.5))
            self._records = min(max(aim, _FIRST_RECORDS // 4), 4 * self._records, _MOST_RECORDS)

    def _write(self, batch: Any, partition: TopicPartition) -> None:
        try:
            self._sink.write(batch)
        except PartitionTimeError as error:
            offset = batch.column(self._settings.columns.prefix + "offset")[error.row]
            raise ValueError(f"record of {partition} at offset {offset}: {error}") from None

    def _discard(self) -> None:
        self._sink.discard()
        if self._letters is not None:
            self._letters.discard()

    def _explain(self, error: DataLossError) -> NoReturn:
        """Raise the error about records that were lost during a read, or a more precise one if the topics show it."""
        self._wait_for(partial(self._names.refresh, force=True))
        self._check_ids()
        partitions = self._names.partitions()
        self._positions(partitions, self._ends(partitions))
        raise error

    def _upsert(self, batches: list[Any]) -> None:
        """Pass the latest row of each key to the table. Raises ValueError for a record without a key."""
        prefix = self._settings.columns.prefix
        key = prefix + "key"
        kind = batches[0].schema.field(key).type
        if pa.types.is_nested(kind):
            raise ValueError(f"upsert requires keys with a single value, but the keys are {kind}")
        for batch in batches:
            if batch.column(key).null_count:
                row = batch.filter(compute.is_null(batch.column(key))).slice(0, 1).to_pylist()[0]
                raise ValueError(
                    f"record of {self._settings.topics[0]}-{row[prefix + 'partition']} at offset "
                    f"{row[prefix + 'offset']}: it has no key, which upsert requires"
                )
        keys = pa.concat_arrays([batch.column(key) for batch in batches])
        numbered = pa.table({"key": keys, "row": np.arange(len(keys))})
        latest = numbered.group_by("key", use_threads=False).aggregate([("row", "max")])
        is_latest: Any = np.zeros(len(keys), bool)
        is_latest[latest["row_max"].to_numpy()] = True
        self._sink.upsert(_take_latest(batches, is_latest), latest["key"].combine_chunks(), key)

    def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the rows with these offsets, or drop the rows if another program has changed the table.

        The next step then reads the same records again. Raises TableConflictError if another follower has committed,
        and the errors of the table's format.
        """
        began = host.monotonic()
        intended = self._table.advanced(offsets, self._client.topic_ids({tp.topic for tp in offsets}))
        try:
            done = self._sink.commit(intended)
        except Exception as error:
            found = self._sink.load()
            if found == intended and not isinstance(error, TableConflictError):
                logger.warning("the commit succeeded, although its request failed: %s", error)
                self._table, self._committed, self._is_new = intended, intended, False
                return
            if not isinstance(error, TableConflictError):
                raise
            self._check_committed(found, error)
            logger.warning("another writer has changed the table; reading the records of this commit again")
            return
        self._table, self._committed, self._is_new = intended, intended, False
        self.metrics.show_commit(done, host.monotonic() - began)
        logger.info("committed %d rows in %d files", done.rows, done.files)

    def _check_committed(self, found: TableOffsets | None, error: TableConflictError) -> None:
        """Raise TableConflictError if the table that was loaded after a conflict has the offsets of another follower.

        The next commit would only require that the table has not changed since, and add records again.
        """
        if (found or TableOffsets()) != self._committed:
            raise TableConflictError(
                "another follower writes to this table: its offsets differ from the last commit"
            ) from error
        self._columns = None  # the other writer may have added columns

    def _maintain(self) -> bool:
        """Merge small files if that is due and until the next commit is; return whether files were merged."""
        least_s = self._settings.interval_s * _MERGE_SHARE
        until = max(self._schedule.next_begin(), host.monotonic() + least_s)
        try:
            merged = self._sink.maintain(lambda: self._is_stopping() or host.monotonic() >= until)
        except TableConflictError as error:
            self._check_committed(self._sink.load(), error)
            return False
        if merged:
            self.metrics.show_merge(merged)
            logger.info("merged %d files", merged)
        return merged > 0

    def _pause(self, seconds: float) -> None:
        deadline = host.monotonic() + seconds
        while not self._is_stopping() and (left := deadline - host.monotonic()) > 0:
            host.pause(min(left, 0.05))

    # Folders

    def _backfill(self, folder: str) -> None:
        """Commit the records in partition directories that the table does not have yet."""
        is_committed = self._settings.isolation_level == "read_committed"
        backfill = self._wait_for(lambda: FolderBackfill(folder, self._names, is_committed=is_committed))
        backfill.check_ids(self._wait_for(partial(self._client.topic_ids, self._names.found)))
        while not self._is_stopping():
            ranges = backfill.ranges(self._table.offsets, self._lose)
            if not ranges:
                return
            self._round(backfill.source, ranges)


class _RegistryError(Exception):
    """The registry does not respond, so that records may have a schema that is not known yet."""


def _take_latest(batches: list[Any], is_latest: Any) -> Iterator[Any]:
    """Yield the latest rows of their keys that have values, and remove each batch from the list, to free its memory."""
    start = 0
    batches.reverse()
    while batches:
        batch = batches.pop()
        kept = pa.array(is_latest[start : start + batch.num_rows])
        start += batch.num_rows
        yield batch.select(batch.schema.names[:-1]).filter(compute.and_(kept, batch.column("#value")))


def _limited(ranges: Sequence[OffsetRange], records: int) -> list[OffsetRange]:
    """Return the ranges with at most this number of records, the same number of each partition as far as possible."""
    left, found = records, []
    for index, r in enumerate(sorted(ranges, key=lambda r: r.records)):
        share = max(1, left // (len(ranges) - index))
        take = min(r.records, share)
        found.append(OffsetRange(r.partition, r.start, r.start + take, r.topic_id))
        left = max(0, left - take)
    return found
