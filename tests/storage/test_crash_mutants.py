"""The crash tests prove themselves: each planted bug must be caught, by some image, within a bounded number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from tests.storage.crash_check import BrokenPromiseError
from tests.storage.crash_points import count_calls, images, prepare
from tests.storage.crash_scenarios import BY_NAME

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.simulation.disk import SimDisk
from barnabas.storage import log_checkpoints, log_loader
from barnabas.storage.filesystem import FileSystem
from barnabas.storage.lane_task import LaneTask
from barnabas.storage.leader_epochs import LeaderEpochCache
from barnabas.storage.log import Log
from barnabas.storage.log_creation import LogCreation
from barnabas.storage.log_dir import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, LogDir
from barnabas.storage.log_loader import LogLoader
from barnabas.storage.log_manager import LogManager
from barnabas.storage.log_segment import LogSegment
from barnabas.storage.offset_index import OffsetIndex
from barnabas.storage.producer_state import ProducerStateManager
from barnabas.storage.segment_indexes import SegmentIndexes
from barnabas.storage.unsynced_files import FlushTask

Patch = pytest.MonkeyPatch
ROUNDS = 3


@dataclass(frozen=True)
class Mutant:
    """A bug, and the scenarios in which a crash must show it."""

    name: str
    plant: Callable[[Patch], None]
    scenarios: tuple[str, ...]


def _nothing(*_: Any, **__: Any) -> None:
    return None


def acknowledge_before_flush(patch: Patch) -> None:
    patch.setattr(FlushTask, "run", _nothing)


def no_check_at_recovery(patch: Patch) -> None:
    patch.setattr(LogLoader, "_recover", _nothing)


def recovery_keeps_bad_batches(patch: Patch) -> None:
    patch.setattr(LogSegment, "_is_sound", lambda *_: True)


def index_entry_past_its_batch(patch: Patch) -> None:
    append = OffsetIndex.append
    patch.setattr(OffsetIndex, "append", lambda index, offset, position: append(index, offset, position + 1))


def recovery_point_ahead_of_flush(patch: Patch) -> None:
    checkpointed = {**log_checkpoints.CHECKPOINTED, RECOVERY_POINT_CHECKPOINT: lambda log: log.log_end_offset}
    patch.setattr(log_checkpoints, "CHECKPOINTED", checkpointed)


def no_fsync_of_the_folder_after_a_roll(patch: Patch) -> None:
    run = FlushTask.run

    def run_without_names(task: FlushTask) -> None:
        task.sync_directory = False
        task.epoch_lines = None
        task.snapshots.clear()
        run(task)

    patch.setattr(FlushTask, "run", run_without_names)


def indexes_of_the_last_flushed_segment_unchecked(patch: Patch) -> None:
    # Recovery, opening a log and the first use of an index each check it: the promise breaks where none of them does.
    patch.setattr(log_loader, "rebuild_damaged_indexes", _nothing)
    patch.setattr(LogLoader, "_mend_indexes", _nothing)
    patch.setattr(SegmentIndexes, "_check_last_entries", _nothing)


def aborted_transactions_left_out_of_the_flush(patch: Patch) -> None:
    patch.setattr(LogSegment, "has_new_transactions", False)


def epochs_left_out_of_the_flush(patch: Patch) -> None:
    patch.setattr(LeaderEpochCache, "flush", _nothing)
    run = FlushTask.run

    def run_without_epochs(task: FlushTask) -> None:
        task.epoch_lines = None
        run(task)

    patch.setattr(FlushTask, "run", run_without_epochs)


def clean_marker_left_at_start(patch: Patch) -> None:
    begin_loading = LogDir.begin_loading

    def begin_and_put_it_back(log_dir: LogDir) -> Any:
        found = begin_loading(log_dir)
        if log_dir.was_clean_shutdown:
            log_dir.write_clean_shutdown_marker()
        return found

    patch.setattr(LogDir, "begin_loading", begin_and_put_it_back)


def marker_before_the_flush(patch: Patch) -> None:
    closing_tasks = LogManager.closing_tasks

    def marker_first(manager: LogManager) -> Any:
        for log_dir in manager.held.online_dirs:
            log_dir.write_clean_shutdown_marker()
        return closing_tasks(manager)

    patch.setattr(LogManager, "closing_tasks", marker_first)


def checkpoint_renamed_without_fsync(patch: Patch) -> None:
    def write_carelessly(disk: SimDisk, path: str, data: bytes) -> None:
        file = disk.open(f"{path}.tmp", create=True)
        file.truncate(0)
        file.pwrite(data, 0)
        file.close()
        disk.rename(f"{path}.tmp", path)
        disk.fsync_dir(path.rpartition("/")[0])

    patch.setattr(SimDisk, "write_atomic", write_carelessly)


def log_start_not_checkpointed(patch: Patch) -> None:
    write = LogDir.write_checkpoint

    def write_others(log_dir: LogDir, name: str, offsets: Mapping[TopicPartition, int], moment: int) -> None:
        if name != LOG_START_OFFSET_CHECKPOINT:
            write(log_dir, name, offsets, moment)

    patch.setattr(LogDir, "write_checkpoint", write_others)


def producer_snapshot_ignored(patch: Patch) -> None:
    def forget(state: ProducerStateManager, log_start_offset: int, now_ms: int) -> None:
        state.last_snapshot_offset = state.map_end_offset = max([log_start_offset, *state._snapshots])

    patch.setattr(ProducerStateManager, "_load_from_snapshot", forget)


def truncation_not_synced(patch: Patch) -> None:
    patch.setattr(LogSegment, "flush", _nothing)


def truncation_keeps_the_recovery_point(patch: Patch) -> None:
    def truncate(manager: LogManager, offsets: dict[TopicPartition, int]) -> None:
        for topic_partition, offset in offsets.items():
            manager.logs[topic_partition].truncate_to(offset)

    patch.setattr(LogManager, "truncate_to", truncate)


def old_offsets_for_a_new_log(patch: Patch) -> None:
    patch.setattr(LogCreation, "_begin_anew", lambda *_: _nothing)


def new_folder_not_made_durable(patch: Patch) -> None:
    create = LogCreation._create_log

    def create_without_sync(creation: LogCreation, log_dir: LogDir, *arguments: Any) -> Log:
        fs, creation._fs = creation._fs, _NoFolderSync(creation._fs, log_dir.path)
        try:
            return create(creation, log_dir, *arguments)
        finally:
            creation._fs = fs

    patch.setattr(LogCreation, "_create_log", create_without_sync)


class _NoFolderSync:
    """A file system that forgets to sync one folder."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def fsync_dir(self, path: str) -> None:
        """Does it for all other folders."""
        if path != self._path:
            self._fs.fsync_dir(path)


def delete_without_rename(patch: Patch) -> None:
    def delete_in_place(manager: LogManager, topic_partition: TopicPartition) -> LaneTask:
        log = manager.logs.pop(topic_partition)
        log_dir = manager.held.dir_of.pop(topic_partition)
        log.close_handles()
        return LaneTask(log_dir.path, partial(log_dir.remove_log, log.path))

    patch.setattr(LogManager, "delete_log", delete_in_place)


def rename_of_a_deleted_folder_not_synced(patch: Patch) -> None:
    delete = LogManager.delete_log

    def delete_without_sync(manager: LogManager, topic_partition: TopicPartition) -> LaneTask | None:
        fs, manager._fs = manager._fs, _NoFolderSync(manager._fs, manager.held.dir_of[topic_partition].path)
        try:
            return delete(manager, topic_partition)
        finally:
            manager._fs = fs

    patch.setattr(LogManager, "delete_log", delete_without_sync)


MUTANTS = [
    Mutant("acknowledge before flush", acknowledge_before_flush, ("append", "roll")),
    Mutant("no check at recovery", no_check_at_recovery, ("append", "roll")),
    Mutant("recovery keeps bad batches", recovery_keeps_bad_batches, ("append", "roll")),
    Mutant("index entry past its batch", index_entry_past_its_batch, ("roll",)),
    Mutant("recovery point ahead of flush", recovery_point_ahead_of_flush, ("checkpoints",)),
    Mutant("no fsync of the folder after a roll", no_fsync_of_the_folder_after_a_roll, ("roll", "roll-new-log")),
    Mutant("indexes unchecked", indexes_of_the_last_flushed_segment_unchecked, ("idle-roll",)),
    Mutant("aborts left out of the flush", aborted_transactions_left_out_of_the_flush, ("idle-roll",)),
    Mutant("epochs left out of the flush", epochs_left_out_of_the_flush, ("checkpoints", "truncate-after-crash")),
    Mutant("clean marker left at start", clean_marker_left_at_start, ("append",)),
    Mutant("marker before the flush", marker_before_the_flush, ("clean-shutdown",)),
    Mutant("checkpoint renamed without fsync", checkpoint_renamed_without_fsync, ("delete-records", "topics")),
    Mutant("log start not checkpointed", log_start_not_checkpointed, ("delete-records", "retention")),
    Mutant("producer snapshot ignored", producer_snapshot_ignored, ("append", "start")),
    Mutant("truncation not synced", truncation_not_synced, ("truncate",)),
    Mutant("truncation keeps the recovery point", truncation_keeps_the_recovery_point, ("truncate",)),
    Mutant("old offsets for a new log", old_offsets_for_a_new_log, ("topics",)),
    Mutant("new folder not made durable", new_folder_not_made_durable, ("topics",)),
    Mutant("delete without rename", delete_without_rename, ("delete-topic", "topics")),
    Mutant("rename of a deleted folder not synced", rename_of_a_deleted_folder_not_synced, ("delete-topic", "topics")),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = {name: prepare(BY_NAME[name]) for name in mutant.scenarios}
    mutant.plant(monkeypatch)
    with pytest.raises(BrokenPromiseError):
        for round_number in range(ROUNDS):
            for name in mutant.scenarios:
                scenario = BY_NAME[name]
                total = count_calls(scenario, prepared[name])
                for _ in images(scenario, prepared[name], range(1, total + 2), round_number=round_number):
                    pass
