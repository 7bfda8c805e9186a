"""What must hold after a crash: the promises, and the agreement of every derived file with the raw batches."""

from __future__ import annotations

import struct

from tests.storage.crash_world import ROOT, SMALL, Promise, World, make_manager
from tests.storage.lanes import load, shut_down

from barnabas.protocol.record_batch import Batch, RecordBatch, iter_batches
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.simulation.disk import SimDisk
from barnabas.storage.dump import verify_indexes
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_manager import LogManager


class BrokenPromiseError(AssertionError):
    """A crash lost, changed or resurrected something."""


def require(condition: bool, text: str) -> None:
    """Raises BrokenPromiseError unless the condition holds."""
    if not condition:
        raise BrokenPromiseError(text)


def check_disk(
    disk: SimDisk,
    promises: dict[TopicPartition, Promise],
    *,
    was_killed: bool = False,
    config: LogConfig = SMALL,
    manager_class: type[LogManager] = LogManager,
) -> None:
    """Reopens the disk that a crash left, checks every promise, works on it, and reopens it twice more."""
    world = World(disk, promises, config=config, manager_class=manager_class)
    world.start()
    contents = check_promises(world.manager, promises, was_killed=was_killed)
    for topic_partition, log in world.manager.logs.items():
        log.append_as_leader(memoryview(bytearray(_probe())), leader_epoch=99)
        log.flush()
        batches = read_everything(log)
        require(batches[-1].base_offset + 1 == log.log_end_offset, f"{topic_partition}: the next append is not there")
        contents[topic_partition] = [bytes(batch.view) for batch in batches]
    shut_down(world.manager)
    check_indexes(disk)
    for end in (shut_down, LogManager.close):
        manager = make_manager(disk, config=config, manager_class=manager_class)
        manager.open_dirs()
        load(manager)
        again = {key: [bytes(batch.view) for batch in read_everything(log)] for key, log in manager.logs.items()}
        require(again == contents, f"a later start before {end.__name__} finds other records")
        end(manager)


def _probe() -> bytes:
    from barnabas.protocol.record_batch import RecordBatchBuilder

    builder = RecordBatchBuilder()
    builder.append(b"probe", b"written after the crash", (), 1_800_000_000_000)
    return builder.build()


def check_promises(
    manager: LogManager, promises: dict[TopicPartition, Promise], *, was_killed: bool
) -> dict[TopicPartition, list[bytes]]:
    """Checks each log against what it promised; returns the batches of each."""
    contents = {}
    for topic_partition, promise in promises.items():
        log = manager.logs.get(topic_partition)
        require(
            topic_partition not in manager.held.offline,
            f"{topic_partition}: {manager.held.offline.get(topic_partition)}",
        )
        if log is None:
            require(not promise.must_exist, f"{topic_partition} is gone")
            continue
        require(not promise.must_not_exist, f"{topic_partition} came back after its deletion")
        if promise.must_exist:
            require(log.topic_id == promise.topic_id, f"{topic_partition} has topic id {log.topic_id}")
        batches = read_everything(log)
        check_content(log, promise, batches, was_killed=was_killed)
        check_derived_state(log, batches)
        contents[topic_partition] = [bytes(batch.view) for batch in batches]
    return contents


def read_everything(log: Log) -> list[Batch]:
    """All batches from the log start to the log end, read as a consumer reads."""
    batches: list[Batch] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 300, max_offset=log.log_end_offset, min_one_message=True)
        whole = list(iter_batches(bytes(data.data)))
        require(bool(whole), f"nothing can be read at {offset} of {log.log_end_offset}")
        batches += whole
        offset = whole[-1].last_offset + 1
    return batches


def check_content(log: Log, promise: Promise, batches: list[Batch], *, was_killed: bool) -> None:
    """Nothing acknowledged is missing, nothing is changed, nothing is there that was never written."""
    name = log.topic_partition
    start, end = log.log_start_offset, log.log_end_offset
    require(start >= promise.start, f"{name}: log start went back from {promise.start} to {start}")
    require(
        start <= max(promise.start, promise.start_at_most),
        f"{name}: log start {start} is above {max(promise.start, promise.start_at_most)}, to which it was raised",
    )
    owed = promise.end if was_killed else promise.acknowledged_end
    require(end >= owed, f"{name}: {owed} was {'written' if was_killed else 'acknowledged'}, the log ends at {end}")
    next_offset = None
    for batch in batches:
        base = batch.base_offset
        require(batch.is_valid, f"{name}: CRC of the batch at {base}")
        if next_offset is not None:
            require(base == next_offset, f"{name}: batch at {base} follows the end {next_offset}")
        require(base in promise.versions, f"{name}: a batch at {base} that should not be there")
        require(bytes(batch.view) == promise.versions[base], f"{name}: the batch at {base} has other bytes")
        next_offset = promise.next_offset[base]
        require(batch.last_offset + 1 == next_offset, f"{name}: the batch at {base} ends at {batch.last_offset}")
    if batches:
        first = batches[0]
        require(first.base_offset <= start <= first.last_offset, f"{name}: first batch {first.base_offset} for {start}")
    require((next_offset or end) == end, f"{name}: the last batch ends at {next_offset}, the log at {end}")
    require(start <= log.high_watermark <= end, f"{name}: high watermark {log.high_watermark} not in [{start}, {end}]")
    require(log.recovery_point <= end, f"{name}: recovery point {log.recovery_point} above the end {end}")


def check_derived_state(log: Log, batches: list[Batch]) -> None:
    """Leader epochs and producer states equal what the raw batches say."""
    name = log.topic_partition
    producers: dict[int, tuple[int, int, int]] = {}
    for batch in batches:
        if not isinstance(batch, RecordBatch):
            continue
        found = log.leader_epochs.epoch_for_offset(max(batch.base_offset, log.log_start_offset))
        require(found == batch.partition_leader_epoch, f"{name}: epoch {found} at {batch.base_offset}")
        if batch.producer_id >= 0 and not batch.is_control:
            producers[batch.producer_id] = (batch.producer_epoch, batch.last_sequence, batch.last_offset)
    for entry in log.leader_epochs.entries:
        bound = max(log.log_end_offset, log.log_start_offset + 1)
        require(entry.start_offset < bound, f"{name}: epoch entry {entry} beyond the log end")
    for producer_id, expected in producers.items():
        entry_ = log.producer_state.producers.get(producer_id)
        require(entry_ is not None, f"{name}: producer {producer_id} is forgotten")
        assert entry_ is not None
        known = (entry_.producer_epoch, entry_.last_sequence, entry_.last_offset)
        require(known == expected, f"{name}: producer {producer_id} is at {known}, its batches say {expected}")
    found_aborted = (
        {
            (aborted.producer_id, aborted.last_offset)
            for segment in log.segments
            for aborted in segment.indexes.transactions.entries
            if aborted.last_offset >= batches[0].base_offset
        }
        if batches
        else set()
    )
    require(found_aborted == _aborted_in(batches), f"{name}: the transaction indexes name {found_aborted}")
    for producer_id, state in log.producer_state.producers.items():
        require(state.last_offset < log.log_end_offset, f"{name}: producer {producer_id} is ahead of the log")


def _aborted_in(batches: list[Batch]) -> set[tuple[int, int]]:
    """Producer and marker offset of each aborted transaction of which the log still holds data."""
    began: set[int] = set()
    aborted: set[tuple[int, int]] = set()
    for batch in batches:
        if not isinstance(batch, RecordBatch):
            continue
        marker = batch.end_marker if batch.is_control else None
        if marker is not None and batch.producer_id in began:
            began.remove(batch.producer_id)
            if marker.is_abort:
                aborted.add((batch.producer_id, batch.base_offset))
        elif batch.is_transactional and not batch.is_control:
            began.add(batch.producer_id)
    return aborted


def check_indexes(disk: SimDisk) -> None:
    """Every index on the disk agrees with its log, and none has entries of zeros, which a dump takes for a tail."""
    tree = disk.tree()
    for path in tree:
        if not path.startswith(f"{ROOT}/") or "-delete/" in path:
            continue
        if path.endswith(".log"):
            for problem in verify_indexes(disk, path):
                require(False, f"{path}: {problem}")
        for suffix, layout in ((".index", ">II"), (".timeindex", ">qI")):
            if path.endswith(suffix):
                size = struct.calcsize(layout)
                require(len(tree[path]) % size == 0, f"{path}: {len(tree[path])} bytes")
                rows = list(struct.iter_unpack(layout, tree[path]))
                require(all(row[0] > 0 for row in rows), f"{path}: zeros in {rows}")
