"""Partition directories of Kafka or Barnabas as a stream of record batches, without a broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import numpy as np

from ..protocol.errors import KafkaError, ProtocolError
from ..protocol.record_batch import Batch
from ..protocol.special_timestamps import EARLIEST, LATEST
from ..protocol.topic_partition import TopicPartition
from . import host
from .offset_range import OffsetRange
from .positions import OffsetLookups, Position, resolve_positions
from .range_reader import decode_batches
from .record_stream import Errors, Progress, RecordStream
from .record_table import RecordTable
from .remote_path import AnyPath
from .segment_files import PartitionFiles, SegmentRange, find_folders, read_batches
from .value_types import Format, column_formats


def read_folder(
    path: str,
    *,
    topics: str | Sequence[str] | None = None,
    partitions: Sequence[int] | None = None,
    start: Position = "earliest",
    end: Position = "latest",
    columns: Sequence[str] | None = None,
    filter: Any = None,  # noqa: A002 - the name in pyarrow
    key: Format = "binary",
    value: Format = "binary",
    errors: Errors = "raise",
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed",
    threads: int | None = None,
    progress: Progress | None = None,
) -> RecordStream:
    """Return the records in a log directory, or in partition directories, which a pattern may match.

    The path may be a URL of a file system of fsspec, such as `s3://bucket/logs`. A running broker may write to the
    files: records after the end of the log at the time of the call are not read. The other parameters are as for
    `read_topic`.

    Raises FileNotFoundError without a partition directory, ValueError for an invalid argument, and while the stream is
    read ProtocolError for damaged files.
    """
    if isolation_level not in ("read_committed", "read_uncommitted"):
        raise ValueError(
            f"isolation_level: invalid value {isolation_level!r}. Expected read_committed or read_uncommitted"
        )
    wanted = frozenset([topics] if isinstance(topics, str) else topics or ())
    folders = {
        tp: folder
        for tp, folder in find_folders(str(path), wanted)
        if partitions is None or tp.partition in set(partitions)
    }
    missing = set(partitions or ()) - {tp.partition for tp in folders}
    if missing:
        raise ValueError(f"no partition {min(missing)} at {path}")
    names = sorted({tp.topic for tp in folders})
    types, formats = column_formats(key, value, names)
    source = FolderSource(folders, committed=isolation_level == "read_committed")
    return RecordStream(
        source,
        source.plan(start, end),
        types=types,
        formats=formats,
        errors=errors,
        columns=columns,
        filter=filter,
        threads=threads or host.default_threads(),
        progress=progress,
    )


class FolderSource:
    """The files of partition directories, with the names and sizes that they have in the constructor."""

    def __init__(self, folders: Mapping[TopicPartition, AnyPath], *, committed: bool) -> None:
        self._files = {tp: PartitionFiles(tp, folder) for tp, folder in folders.items()}
        self._committed = committed

    @contextmanager
    def open(self, *, headers: bool) -> Iterator[FolderReader]:
        """Return a reader, which opens one file at a time."""
        yield FolderReader(self._files, committed=self._committed, headers=headers)

    def find_times(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offset at or after each time in ms, or of each special timestamp; -1 without one."""
        found = {}
        for tp, timestamp in timestamps.items():
            files = self._files[tp]
            if timestamp == EARLIEST:
                found[tp] = files.first_offset
            elif timestamp == LATEST:
                found[tp] = files.end_offset()
            else:
                found[tp] = self._find_time(files, timestamp)
        return found

    def _find_time(self, files: PartitionFiles, timestamp: int) -> int:
        for r in files.ranges_from_time(timestamp):
            for batches in read_batches(r):
                late = [batch for batch in batches if batch.max_timestamp >= timestamp and not batch.is_control]
                for columns, _ in decode_batches(late, headers=False):
                    rows = np.flatnonzero(columns.timestamps >= timestamp)
                    if len(rows):
                        return int(columns.offsets[rows[0]])
        return -1

    def plan(self, start: Position, end: Position) -> list[OffsetRange]:
        """Return the ranges between two positions. Raises ValueError, ProtocolError."""
        lookups = OffsetLookups(self.find_times, _no_groups)
        resolve = partial(resolve_positions, partitions=list(self._files), lookups=lookups, now_ms=host.now_ms)
        ends = resolve(end, name="end", default="latest")
        starts = resolve(start, name="start", default="earliest")
        lasts = self.find_times(dict.fromkeys(self._files, LATEST))
        ranges = []
        for tp, files in self._files.items():
            first = max(starts[tp], files.first_offset)
            ranges.append(OffsetRange(tp, first, max(first, min(ends[tp], lasts[tp]))))
        return ranges


def _no_groups(group: str, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    raise ValueError(f"committed offsets of group {group!r} require a broker: use read_topic()")


class FolderReader:
    """Reads ranges of partitions from their files on one thread."""

    def __init__(self, files: Mapping[TopicPartition, PartitionFiles], *, committed: bool, headers: bool) -> None:
        self._files = files
        self._committed = committed
        self._headers = headers
        self._is_interrupted = False

    def interrupt(self) -> None:
        """End the read after the current block of a file, from any thread."""
        self._is_interrupted = True

    def read(self, r: OffsetRange) -> Iterator[RecordTable]:
        """Yield the records of a range, a few megabytes at a time. Raises ProtocolError, OSError."""
        files = self._files[r.partition]
        hidden = HiddenBatches(files, committed=self._committed)
        for segment in files.ranges_between(r.start, r.end):
            for batches in read_batches(segment):
                if self._is_interrupted:
                    return
                wanted_batches = [batch for batch in batches if batch.base_offset < r.end]
                visible = [b for b in wanted_batches if _is_valid(segment, b) and not hidden.is_hidden(b)]
                end = r.end if hidden.stable_end is None else min(r.end, hidden.stable_end)
                try:
                    for columns, _ in decode_batches(visible, headers=self._headers):
                        wanted = columns.between(r.start, end)
                        if len(wanted):
                            yield wanted
                except (ProtocolError, KafkaError) as error:
                    raise ProtocolError(
                        f"{r.partition} from offset {visible[0].base_offset}: {segment.path}: {error}"
                    ) from error
                if batches[-1].last_offset >= end - 1:
                    return


def _is_valid(r: SegmentRange, batch: Batch) -> bool:
    """Return True. Raises ProtocolError for a damaged batch."""
    if not batch.is_valid:
        raise ProtocolError(
            f"{r.partition} at offset {batch.base_offset}: {r.path}: the CRC of the batch at position "
            f"{batch.position} does not match"
        )
    return True


class HiddenBatches:
    """Markers, and with `committed` aborted transactions and records after the start of the first open transaction."""

    def __init__(self, files: PartitionFiles, *, committed: bool) -> None:
        self._files = files
        self._committed = committed
        self._aborted: dict[int, list[tuple[int, int]]] | None = None
        self.stable_end: int | None = None
        """The last stable offset, as soon as a batch of a transaction has been seen; None without open transactions."""

    def is_hidden(self, batch: Batch) -> bool:
        """Return whether a reader does not see the batch. It requires the batches of a partition in order."""
        if batch.is_control:
            return True
        if not self._committed or not batch.is_transactional:
            return False
        if self._aborted is None:
            # Only now: logs without transactions are not read twice.
            self._aborted = {}
            for each in self._files.aborted():
                self._aborted.setdefault(each.producer_id, []).append((each.first_offset, each.last_offset))
            self.stable_end = self._files.last_stable_offset()
        return any(first <= batch.base_offset <= last for first, last in self._aborted.get(batch.producer_id, ()))
