"""Dirty folders for the cleaner's tests, what a cleaned one holds, and a cleaner that thinks in records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from barnabas.protocol.record_batch import Batch, Record, RecordBatchBuilder, iter_batches
from barnabas.storage.cleaning.clean_job import CleanJob, Event, GroupCleaned, PassFinished, SourceSegment
from barnabas.storage.cleaning.cleaner import clean
from barnabas.storage.filesystem import FileSystem, OsFileSystem

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def batch_of(records: Sequence[tuple[int, bytes | None, bytes | None]], **fields: Any) -> bytes:
    """A batch of (offset, key, value); its last offset is the last record's."""
    timestamp = fields.pop("timestamp", NOW_MS)
    builder = RecordBatchBuilder(base_offset=records[0][0], **fields)
    for index, (offset, key, value) in enumerate(records):
        assert builder.append(key, value, [("h", b"x")] if offset % 3 == 0 else (), timestamp + index, offset)
    return builder.build()


def write_segment(directory: Path, batches: Iterable[bytes], base_offset: int | None = None) -> SourceSegment:
    """A segment's `.log` alone, old by an hour."""
    data = b"".join(batches)
    if base_offset is None:
        base_offset = next(iter_batches(data)).base_offset
    path = directory / f"{base_offset:020d}.log"
    path.write_bytes(data)
    OsFileSystem().set_modified_ms(str(path), NOW_MS - HOUR_MS)
    return SourceSegment(base_offset, len(data))


def job_of(directory: Path, segments: Sequence[SourceSegment], end: int, **fields: Any) -> CleanJob:
    fields = {"first_dirty_offset": 0, "now_ms": NOW_MS, "delete_retention_ms": HOUR_MS} | fields
    return CleanJob(str(directory), tuple(segments), first_uncleanable_offset=end, **fields)


def run(job: CleanJob, fs: FileSystem | None = None, *, use_native: bool = True) -> list[Event]:
    return list(clean(job, fs or OsFileSystem(), lambda _: None, use_native=use_native))


def groups(events: Iterable[Event]) -> list[GroupCleaned]:
    return [event for event in events if isinstance(event, GroupCleaned)]


def finished(events: Sequence[Event]) -> PassFinished:
    last = events[-1]
    assert isinstance(last, PassFinished)
    return last


def swap(job: CleanJob, events: Iterable[Event]) -> list[SourceSegment]:
    """Let the cleaned segments take their places; the segments that there are then."""
    directory = Path(job.directory)
    sizes = {segment.base_offset: segment.size for segment in job.segments}
    for group in groups(events):
        for base_offset in group.replaced:
            del sizes[base_offset]
            for path in directory.glob(f"{base_offset:020d}.*"):
                if path.suffix != ".cleaned":
                    path.unlink()
        for path in directory.glob(f"{group.base_offset:020d}.*.cleaned"):
            path.rename(path.with_suffix(""))
        sizes[group.base_offset] = group.size
    return [SourceSegment(base_offset, sizes[base_offset]) for base_offset in sorted(sizes)]


def batches_in(directory: Path, suffix: str = ".log") -> list[Batch]:
    """All batches of all segments whose names end like this, in order; each sound."""
    found: list[Batch] = []
    for path in sorted(directory.glob(f"*{suffix}")):
        data = path.read_bytes()
        batches = list(iter_batches(data))
        assert sum(batch.size for batch in batches) == len(data)
        found += batches
    assert all(batch.is_valid for batch in found)
    return found


def records_in(directory: Path, suffix: str = ".log") -> list[Record]:
    """All data records."""
    return [record for batch in batches_in(directory, suffix) if not batch.is_control for record in batch.records()]
