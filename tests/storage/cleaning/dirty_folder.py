"""A partition folder on a simulated disk for the cleaner's tests, and what is in it before and after."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from barnabas.protocol.record_batch import Batch, ControlType, Record, RecordBatchBuilder, control_batch, iter_batches
from barnabas.simulation.disk import SimDisk
from barnabas.storage.cleaning.clean_job import CleanJob, Event, GroupCleaned, PassFinished, SourceSegment
from barnabas.storage.cleaning.cleaner import clean
from barnabas.storage.segment_files import SEGMENT_SUFFIXES, segment_file_name

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
DIRECTORY = "/logs/topic-0"
Item = tuple[int, bytes | None, bytes | None]


def batch_of(records: Sequence[Item], *, timestamp: int = NOW_MS, step: int = 1, **fields: Any) -> bytes:
    """A batch of (offset, key, value), some with a header; its last offset is the last record's."""
    builder = RecordBatchBuilder(base_offset=records[0][0], **fields)
    for index, (offset, key, value) in enumerate(records):
        headers = [("h", b"x")] if offset % 3 == 0 else ()
        assert builder.append(key, value, headers, timestamp + index * step, offset)
    return builder.build()


def marker(offset: int, producer_id: int, *, commit: bool, epoch: int = 0) -> bytes:
    """The end of a transaction at `offset`."""
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    return control_batch(
        kind, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=0, timestamp=NOW_MS, base_offset=offset
    )


class DirtyFolder:
    """Segments that can be added to, cleaned, and looked at."""

    def __init__(self) -> None:
        self.disk = SimDisk(now_ms=lambda: NOW_MS, keep_log=False)
        self.disk.make_dirs(DIRECTORY)
        self.segments: list[SourceSegment] = []

    def add(self, *batches: bytes, base_offset: int | None = None, modified_ms: int = NOW_MS - HOUR_MS) -> None:
        """One more segment of these batches."""
        data = b"".join(batches)
        if base_offset is None:
            base_offset = next(iter_batches(data)).base_offset
        path = f"{DIRECTORY}/{segment_file_name(base_offset, '.log')}"
        self.write(path, data)
        self.disk.set_modified_ms(path, modified_ms)
        self.segments.append(SourceSegment(base_offset, len(data)))

    def write(self, path: str, data: bytes) -> None:
        file = self.disk.open(path, create=True)
        file.truncate(0)
        assert not data or file.pwrite(data, 0) == len(data)
        file.close()

    def read(self, base_offset: int, suffix: str) -> bytes:
        return self.disk.read_bytes(f"{DIRECTORY}/{segment_file_name(base_offset, suffix)}")

    def job(self, end: int, **fields: Any) -> CleanJob:
        defaults = {"first_dirty_offset": 0, "now_ms": NOW_MS, "delete_retention_ms": HOUR_MS}
        return CleanJob(DIRECTORY, tuple(self.segments), first_uncleanable_offset=end, **defaults | fields)

    def clean(self, end: int, *, use_native: bool = True, swap: bool = True, **fields: Any) -> list[Event]:
        """One pass, whose segments then take their places."""
        events = list(clean(self.job(end, **fields), self.disk, lambda _: None, use_native=use_native))
        if swap:
            self.swap(groups_of(events))
        return events

    def swap(self, groups: Iterable[GroupCleaned]) -> None:
        """Let cleaned segments take their places."""
        for group in groups:
            for base_offset in group.replaced:
                for suffix in SEGMENT_SUFFIXES:
                    path = f"{DIRECTORY}/{segment_file_name(base_offset, suffix)}"
                    if self.disk.exists(path):
                        self.disk.unlink(path)
            for suffix in SEGMENT_SUFFIXES:
                path = f"{DIRECTORY}/{segment_file_name(group.base_offset, suffix)}"
                if self.disk.exists(path + ".cleaned"):
                    self.disk.rename(path + ".cleaned", path)
            kept = [segment for segment in self.segments if segment.base_offset not in group.replaced]
            self.segments = sorted([*kept, SourceSegment(group.base_offset, group.size)])

    def batches(self) -> list[Batch]:
        """All batches of all segments, each sound."""
        found: list[Batch] = []
        for segment in self.segments:
            data = self.read(segment.base_offset, ".log")
            batches = list(iter_batches(data))
            assert sum(batch.size for batch in batches) == len(data) == segment.size
            found += batches
        assert all(batch.is_valid for batch in found)
        return found

    def records(self) -> list[Record]:
        """All data records."""
        data_batches = [batch for batch in self.batches() if not batch.is_control]
        return [record for batch in data_batches for record in batch.records()]

    def offsets(self) -> list[int]:
        return [record.offset for record in self.records()]

    def unfinished(self) -> dict[str, bytes]:
        """The files that a pass leaves to be swapped."""
        names = [name for name in self.disk.list_dir(DIRECTORY) if name.endswith(".cleaned")]
        return {name: self.disk.read_bytes(f"{DIRECTORY}/{name}") for name in names}


def groups_of(events: Iterable[Event]) -> list[GroupCleaned]:
    return [event for event in events if isinstance(event, GroupCleaned)]


def end_of(events: Sequence[Event]) -> PassFinished:
    last = events[-1]
    assert isinstance(last, PassFinished)
    return last
