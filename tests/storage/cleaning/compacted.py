"""A small compacted log with keys, tombstones and transactions on a simulated disk, and what its readers see."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.storage.logs import Clock, marker, open_log

from barnabas.protocol.record_batch import RecordBatch, RecordBatchBuilder, iter_batches
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.simulation.disk import SimDisk
from barnabas.storage.cleaning.clean_job import GroupCleaned, PassFinished
from barnabas.storage.cleaning.cleaner import clean
from barnabas.storage.cleaning.log_to_clean import CleanerSettings, LogToClean, log_to_clean
from barnabas.storage.log import Log
from barnabas.storage.log_validator import COORDINATOR_RULES

PATH = "/data/t-0"
TP = TopicPartition("t", 0)
SETTINGS: dict[str, Any] = {
    "cleanup_policy": "compact",
    "segment_bytes": 600,
    "index_interval_bytes": 150,
    "segment_index_bytes": 400,
    "file_delete_delay_ms": 0,
}
Pair = tuple[str, str | None]


def new_log(disk: SimDisk, clock: Clock | None = None, **settings: Any) -> Log:
    """A new compacted log at `PATH`."""
    disk.make_dirs("/data")
    return open_log(PATH, fs=disk, clock=clock, **{**SETTINGS, **settings})


def put(log: Log, pairs: Iterable[Pair], *, timestamp: int = 1_700_000_000_000, **fields: Any) -> None:
    """Append one batch of keys and values."""
    builder = RecordBatchBuilder(**fields)  # type: ignore[arg-type]
    for key, value in pairs:
        builder.append(key.encode(), None if value is None else value.encode(), (), timestamp)
    log.append_as_leader(memoryview(bytearray(builder.build())), leader_epoch=0)
    log.update_high_watermark(log.log_end_offset)


def end_transaction(log: Log, producer_id: int, *, commit: bool) -> None:
    """Append a marker."""
    log.append_as_leader(marker(producer_id, commit=commit), leader_epoch=0, rules=COORDINATOR_RULES)
    log.update_high_watermark(log.log_end_offset)


def fill(log: Log) -> None:
    """Overwritten keys, keys that are deleted, an aborted and a committed transaction, over several segments."""
    for turn in range(6):
        put(log, [(f"k{number}", f"{turn}/{number}") for number in range(5)])
        put(log, [("gone", str(turn) if turn < 4 else None), (f"once{turn}", "x" * 40)])
        producer = 100 + turn
        put(
            log,
            [("tx", f"tx{turn}"), (f"tx{turn}", "y" * 30)],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        end_transaction(log, producer, commit=turn % 2 == 0)
    log.roll()
    put(log, [("k0", "last"), ("fresh", "1")])
    log.flush()


def committed(log: Log) -> list[tuple[int, str, str | None]]:
    """What a read_committed reader from the log's start gets, one fetch after another."""
    found: list[tuple[int, str, str | None]] = []
    offset, aborted_until = log.log_start_offset, dict[int, int]()
    while offset < log.log_end_offset:
        data = log.read(offset, 400, min_one_message=True, read_committed=True)
        batches = list(iter_batches(data.data))
        if not batches:
            break
        starts = {(one.first_offset, one.producer_id) for one in data.aborted_transactions or ()}
        for batch in batches:
            assert isinstance(batch, RecordBatch)
            if batch.last_offset < offset:
                continue
            for first, producer in starts:
                if first <= batch.last_offset:
                    aborted_until[producer] = max(aborted_until.get(producer, 0), first)
            if batch.is_control:
                aborted_until.pop(batch.producer_id, None)
                starts = {one for one in starts if one[1] != batch.producer_id or one[0] > batch.base_offset}
            elif not (batch.is_transactional and batch.producer_id in aborted_until):
                found += [
                    (r.offset, bytes(r.key or b"").decode(), None if r.value is None else bytes(r.value).decode())
                    for r in batch.records()
                    if r.offset >= offset
                ]
        offset = batches[-1].last_offset + 1
    return found


def state(log: Log) -> dict[str, str]:
    """The map that a reader of the whole log ends with."""
    latest: dict[str, str] = {}
    last = -1
    for offset, key, value in committed(log):
        assert offset > last, f"offset {offset} after {last}"
        last = offset
        if value is None:
            latest.pop(key, None)
        else:
            latest[key] = value
    return latest


def to_clean(log: Log, clean_offset: int | None = None, *, now_ms: int = 1_700_000_000_000) -> LogToClean:
    """The log as its cleaner sees it."""
    return log_to_clean(TP, log, clean_offset, now_ms)


def compact(log: Log, disk: SimDisk, clean_offset: int | None = None, *, now_ms: int = 1_700_000_000_000) -> int:
    """One pass, group by group put into place; how far the log is clean then."""
    job = to_clean(log, clean_offset, now_ms=now_ms).job(CleanerSettings(), now_ms)
    for event in clean(job, disk, lambda size: None):
        if isinstance(event, GroupCleaned):
            for path in log.begin_swap([event.base_offset]).run(event.replaced):
                disk.unlink(path)
        elif isinstance(event, PassFinished):
            return event.next_dirty_offset
    raise AssertionError("no end")
