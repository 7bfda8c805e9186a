"""Writes rows with their offsets as segments (`format("barnabas-log")`), directories that Kafka and Barnabas can serve.

Rows must be sorted by topic, partition and offset, each range of offsets in one task. A broker builds the indexes when
it loads the directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ..protocol.compression import CODEC_BY_CONFIG_NAME
from ..protocol.record_batch import RecordBatchBuilder
from ..protocol.topic_partition import TopicPartition
from .options import OptionReader

_NEEDED = ("topic", "partition", "offset", "key", "value", "timestamp")
_BATCH_BYTES, _SEGMENT_BYTES = 256 << 10, 1 << 30
_MAX_OFFSETS = 2**31 - 1
_LOG_APPEND_TIME = 1


@dataclass
class SegmentsWritten(WriterCommitMessage):
    """The files that a task wrote."""

    rows: int = 0
    files: list[str] = field(default_factory=list)


class BarnabasLogWriter(DataSourceArrowWriter):
    """Options: path, compression (as `compression.type`), segmentBytes."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        read = OptionReader(options)
        self._root = read.require("path")
        self._segment_bytes = read.positive("segmentBytes") or _SEGMENT_BYTES
        self._codec = CODEC_BY_CONFIG_NAME[read.choice("compression", *CODEC_BY_CONFIG_NAME)]
        missing = [name for name in _NEEDED if name not in schema.fieldNames()]
        if missing:
            raise ValueError(f"segments require columns {', '.join(missing)}")

    def write(self, iterator: Iterator[Any]) -> SegmentsWritten:
        context = TaskContext.get()
        attempt = 0 if context is None else context.taskAttemptId()
        segments = _TaskSegments(Path(self._root), self._segment_bytes, self._codec, f"attempt-{attempt}")
        try:
            for batch in iterator:
                for row in _rows(batch):
                    segments.append(*row)
            return segments.finish()
        except BaseException:
            segments.discard()
            raise


class _TaskSegments:
    """The segments of one task: written to a temporary name, and renamed when they are complete."""

    def __init__(self, root: Path, segment_bytes: int, codec: int, suffix: str) -> None:
        self._root = root
        self._segment_bytes = segment_bytes
        self._codec = codec
        self._suffix = suffix
        self._written = SegmentsWritten()
        self._at: TopicPartition | None = None
        self._last_offset = -1
        self._append_time: int | None = None
        self._builder: RecordBatchBuilder | None = None
        self._file: Any = None
        self._path: Path | None = None
        self._base = 0
        self._renames: list[tuple[Path, Path]] = []

    def append(self, tp: TopicPartition, offset: int, append_time: int | None, record: tuple[Any, ...]) -> None:
        key, value, headers, timestamp = record
        if tp != self._at:
            self._end_segment()
            self._at = tp
        elif offset <= self._last_offset:
            raise ValueError(f"{tp}: offset {offset} follows {self._last_offset}")
        builder = self._builder
        if builder is not None and (append_time != self._append_time or offset - builder.base_offset > _MAX_OFFSETS):
            self._end_batch()
            builder = None
        if builder is None or not builder.append(key, value, headers, timestamp, offset):
            self._end_batch()
            builder = self._builder = RecordBatchBuilder(
                codec=self._codec,
                max_size=_BATCH_BYTES,
                base_offset=offset,
                partition_leader_epoch=0,
                log_append_time=append_time,
            )
            self._append_time = append_time
            builder.append(key, value, headers, timestamp, offset)
        self._last_offset = offset
        self._written.rows += 1

    def finish(self) -> SegmentsWritten:
        self._end_segment()
        for temporary, final in self._renames:
            temporary.replace(final)
            self._written.files.append(str(final))
        return self._written

    def discard(self) -> None:
        """Delete all temporary files."""
        if self._file is not None:
            self._file.close()
        for temporary, _ in [*self._renames, *([(self._path, None)] if self._path is not None else [])]:
            temporary.unlink(missing_ok=True)

    def _end_batch(self) -> None:
        builder, self._builder = self._builder, None
        if builder is None:
            return
        batch = builder.build()
        full = self._file is not None and self._file.tell() + len(batch) > self._segment_bytes
        if self._file is None or full or self._last_offset - self._base > _MAX_OFFSETS:
            self._end_file()
            self._open_file(builder.base_offset)
        self._file.write(batch)

    def _open_file(self, base: int) -> None:
        folder = self._root / str(self._at)
        folder.mkdir(parents=True, exist_ok=True)
        final = folder / f"{base:020}.log"
        self._base = base
        self._path = final.with_suffix(f".{self._suffix}")
        self._file = self._path.open("wb")

    def _end_file(self) -> None:
        if self._file is not None and self._path is not None:
            self._file.close()
            self._renames.append((self._path, self._path.with_suffix(".log")))
            self._file = self._path = None

    def _end_segment(self) -> None:
        self._end_batch()
        self._end_file()


def _rows(batch: Any) -> Iterator[tuple[TopicPartition, int, int | None, tuple[Any, ...]]]:
    columns = {name: batch.column(i) for i, name in enumerate(batch.schema.names)}
    count = batch.num_rows
    times = [None if t is None else t // 1000 for t in columns["timestamp"].cast(pa.int64()).to_pylist()]
    types = columns["timestampType"].to_pylist() if "timestampType" in columns else [0] * count
    heads = columns["headers"].to_pylist() if "headers" in columns else [None] * count
    for topic, partition, offset, key, value, time, kind, pairs in zip(
        columns["topic"].to_pylist(),
        columns["partition"].to_pylist(),
        columns["offset"].to_pylist(),
        columns["key"].to_pylist(),
        columns["value"].to_pylist(),
        times,
        types,
        heads,
        strict=True,
    ):
        stamp = -1 if time is None else time
        headers = [(pair["key"], pair["value"]) for pair in pairs or ()]
        append_time = stamp if kind == _LOG_APPEND_TIME else None
        yield TopicPartition(topic, partition), offset, append_time, (key, value, headers, stamp)
