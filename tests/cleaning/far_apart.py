"""A log whose offsets lie further apart than one segment can name: what is left when most of a long log is gone."""

from __future__ import annotations

from struct import error

from soak.cleaning.contents import data_records, latest, segments_of
from soak.cleaning.history import History, Settings
from soak.cleaning.passes import our_pass
from soak.cleaning.promises import BrokenPromiseError, read, require

from barnabas.protocol.record_batch import RecordBatchBuilder
from barnabas.simulation.disk import SimDisk
from barnabas.storage.dump import verify_indexes
from barnabas.storage.errors import StorageError
from barnabas.storage.filesystem import FileSystem
from barnabas.storage.log_segment import MAX_RELATIVE_OFFSET

OFFSETS = (0, 5, 1 << 20, MAX_RELATIVE_OFFSET - 1, MAX_RELATIVE_OFFSET, (1 << 31) + 7, 3 << 30, 1 << 33, (1 << 33) + 9)


def log_far_apart(fs: FileSystem, folder: str) -> History:
    """One record at each of the offsets, each in a segment of its own, all of different keys."""
    history = History(fs, folder, Settings(segment_bytes=1 << 20, delete_retention_ms=1000))
    for number, offset in enumerate((*OFFSETS, OFFSETS[-1] + 1)):
        builder = RecordBatchBuilder(base_offset=offset, partition_leader_epoch=0)
        builder.append(b"key %d" % number, b"value %d" % number, (), history.clock.now_ms)
        history.log.append_as_follower(memoryview(bytearray(builder.build())))
        history.log.update_high_watermark(history.log.log_end_offset)
        history.log.roll()
    history.log.flush()
    return history


def check_far_apart(*, use_native: bool) -> list[int]:
    """Clean such a log: everything is still there, in as few segments as can name it. Returns their base offsets."""
    history = log_far_apart(SimDisk(keep_log=False), "/t-0")
    before = latest(data_records(row for rows in segments_of("/t-0", history.fs).values() for row in rows))
    try:
        our_pass(use_native=use_native)(history, 1000)
        history.restart("killed")
    except (StorageError, error) as problem:
        raise BrokenPromiseError(f"the pass failed: {problem}") from problem
    segments = segments_of("/t-0", history.fs)
    for base, rows in segments.items():
        for row in rows:
            require(row.last_offset - base <= MAX_RELATIVE_OFFSET, f"{row.last_offset} is out of reach from {base}")
        for fault in verify_indexes(history.fs, f"/t-0/{base:020}.log"):
            require(False, f"segment {base}: {fault}")
    rows = [row for segment in segments.values() for row in segment]
    require(latest(data_records(rows)) == before, "other records than before")
    offsets = [batch.base_offset for batch in read(history, 1000)]
    require(offsets == [*OFFSETS, OFFSETS[-1] + 1], f"a reader finds {offsets}")
    history.log.close_handles()
    return list(segments)
