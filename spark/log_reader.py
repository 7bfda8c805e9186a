"""Reads segment files in tasks: rows with their positions, and damaged batches if requested."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from ..arrow.range_reader import decode_batches
from ..arrow.record_table import RecordTable, columns_of_records
from ..arrow.remote_path import AnyPath
from ..arrow.segment_files import (
    SegmentRange,
    find_folders,
    plan_segments,
    read_batches,
)
from ..protocol.compression import Compression
from ..protocol.errors import KafkaError, ProtocolError
from ..protocol.record import Record
from ..protocol.record_batch import Batch
from . import host
from .options import OptionReader
from .rows import RowLayout, default_row
from .value_formats import formats_of, nulls_on_error

_TASKS, _LEAST_SPLIT, _MAX_SPLIT = 4, 32 << 20, 256 << 20
"""The minimum number of tasks without splitBytes, within these limits of bytes per task."""

BATCH_COLUMNS: dict[str, tuple[DataType, Callable[[Batch], Any]]] = {
    "position": (LongType(), lambda batch: batch.position),
    "batchBaseOffset": (LongType(), lambda batch: batch.base_offset),
    "batchLastOffset": (LongType(), lambda batch: batch.last_offset),
    "batchSize": (IntegerType(), lambda batch: batch.size),
    "magic": (IntegerType(), lambda batch: batch.magic),
    "codec": (StringType(), lambda batch: _codec_name(batch.codec)),
    "leaderEpoch": (IntegerType(), lambda batch: batch.partition_leader_epoch),
    "producerId": (LongType(), lambda batch: batch.producer_id),
    "producerEpoch": (IntegerType(), lambda batch: batch.producer_epoch),
    "baseSequence": (IntegerType(), lambda batch: batch.base_sequence),
    "isTransactional": (BooleanType(), lambda batch: batch.is_transactional),
    "isControl": (BooleanType(), lambda batch: batch.is_control),
    "crcValid": (BooleanType(), lambda batch: batch.is_valid),
}
"""The common columns of the rows of a batch."""


def log_row(options: Mapping[str, str]) -> StructType:
    """Return the default schema: Kafka's columns, then the position of the record."""
    headers = OptionReader(options).flag("includeHeaders", default=False)
    place = [StructField(name, kind) for name, kind in _places().items()]
    return StructType([*default_row(formats_of(options), headers=headers).fields, *place])


def _places() -> dict[str, DataType]:
    shared = {name: kind for name, (kind, _) in BATCH_COLUMNS.items()}
    return {"file": StringType()} | shared | {"error": StringType()}


def _codec_name(codec: int) -> str:
    return Compression(codec).config_name if codec in Compression.__members__.values() else f"codec {codec}"


def _size_of(folder: AnyPath) -> int:
    return sum(log.stat().st_size for log in folder.glob("*.log"))


class SegmentsPartition(InputPartition):
    """One task's segment ranges."""

    def __init__(self, ranges: list[SegmentRange]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class BarnabasLogReader(DataSourceReader):
    """Options: path, topics, isolationLevel, includeHeaders, includeControl, onCorrupt (fail, report), splitBytes."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        read = OptionReader(options)
        self._path = read.require("path")
        self._topics = frozenset(name.strip() for name in (read.text("topics") or "").split(",") if name.strip())
        self._committed = read.choice("isolationLevel", "read_uncommitted", "read_committed") == "read_committed"
        self._control = read.flag("includeControl", default=False)
        self._reports = read.choice("onCorrupt", "fail", "report") == "report"
        self._split_bytes = read.positive("splitBytes")
        self._layout = RowLayout(schema, formats_of(options), _places(), null_on_error=nulls_on_error(options))

    def partitions(self) -> list[InputPartition]:
        """Split large segments by their index, and combine small ones; the directories are planned in parallel."""
        tasks: list[list[SegmentRange]] = []
        room = 0
        folders = find_folders(self._path, self._topics)
        split_bytes = self._split_bytes
        if split_bytes is None:
            total = sum(host.map_in_threads(lambda found: _size_of(found[1]), folders))
            split_bytes = min(max(total // _TASKS, _LEAST_SPLIT), _MAX_SPLIT)
        plan = partial(plan_segments, split_bytes=split_bytes, committed=self._committed)
        for ranges in host.map_in_threads(lambda found: plan(*found), folders):
            for r in ranges:
                if not tasks or r.size > room:
                    tasks.append([])
                    room = split_bytes
                tasks[-1].append(r)
                room -= r.size
        return [SegmentsPartition(ranges) for ranges in tasks] or [SegmentsPartition([])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, SegmentsPartition)
        try:
            for r in partition.ranges:
                yield from self._range(r)
        finally:
            host.spare_next_task()

    def _range(self, r: SegmentRange) -> Iterator[Any]:
        try:
            for batches in read_batches(r):
                yield from self._rows(r, batches)
        except ProtocolError as error:
            if not self._reports:
                raise
            yield self._damage(r, None, str(error))

    def _rows(self, r: SegmentRange, batches: Sequence[Batch]) -> Iterator[Any]:
        sound: list[Batch] = []
        for batch in batches:
            if not batch.is_valid:
                message = f"{r.path}: the CRC of the batch at position {batch.position} does not match"
                if not self._reports:
                    raise ProtocolError(message)
                yield self._damage(r, batch, message)
            elif not self._is_hidden(r, batch):
                sound.append(batch)
        try:
            yield from self._decoded(r, sound)
        except (ProtocolError, KafkaError):
            # Batches are decoded again one by one, to keep the readable ones and to find the damaged one.
            for batch in sound:
                yield from self._decoded_alone(r, batch)

    def _decoded(self, r: SegmentRange, batches: Sequence[Batch]) -> Iterator[Any]:
        end = r.end_offset if r.end_offset is not None else 2**63 - 1
        found = []
        for columns, of in decode_batches(batches, headers=self._layout.wants_headers):
            wanted = columns.between(0, end)
            if len(wanted):
                found.append(self._layout.batch(wanted, r.partition, partial(_place, r, wanted, of)))
        yield from found

    def _decoded_alone(self, r: SegmentRange, batch: Batch) -> Iterator[Any]:
        try:
            yield from self._decoded(r, [batch])
        except (ProtocolError, KafkaError) as error:
            message = f"{r.path}: the batch at position {batch.position} cannot be read: {error}"
            if not self._reports:
                raise ProtocolError(message) from error
            yield self._damage(r, batch, message)

    def _is_hidden(self, r: SegmentRange, batch: Batch) -> bool:
        if batch.is_control:
            return not self._control
        if not batch.is_transactional:
            return False
        return any(
            a.producer_id == batch.producer_id and a.first_offset <= batch.base_offset <= a.last_offset
            for a in r.aborted
        )

    def _damage(self, r: SegmentRange, batch: Batch | None, message: str) -> Any:
        """Return one row for a damaged batch: no key, no value, an error."""
        offset = -1 if batch is None else batch.last_offset
        columns = columns_of_records([Record(offset, -1, None, None)], -1, headers=self._layout.wants_headers)
        return self._layout.batch(
            columns, r.partition, partial(_place, r, columns, () if batch is None else [batch], error=message)
        )


def _place(
    r: SegmentRange, columns: RecordTable, batches: Sequence[Batch], name: str, kind: Any, *, error: str | None = None
) -> Any:
    """Return the column `name`, which does not depend on a record's own bytes."""
    if name == "file":
        return pa.repeat(pa.scalar(r.path, kind), len(columns))
    if name == "error":
        return pa.repeat(pa.scalar(error, kind), len(columns))
    if not batches:
        return pa.nulls(len(columns), kind)
    if name == "crcValid" and error is None:
        return pa.repeat(pa.scalar(True, kind), len(columns))
    of = BATCH_COLUMNS[name][1]
    return pa.array([of(batch) for batch in batches], kind).take(pa.array(columns.batch.astype(np.int64)))
