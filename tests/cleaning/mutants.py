"""Bugs to plant in the cleaner, each of a kind that a cleaner has had somewhere, or could have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from struct import Struct
from typing import Any

import pytest

from barnabas.storage import log_loader, segment_swap
from barnabas.storage.cleaning import batch_filter, cleaned_segment, cleaner, record_filter, segment_groups
from barnabas.storage.cleaning.batch_filter import BatchFilter
from barnabas.storage.cleaning.clean_job import PassFinished
from barnabas.storage.cleaning.cleaned_segment import CleanedSegment
from barnabas.storage.cleaning.cleaner import CleaningPass
from barnabas.storage.cleaning.log_to_clean import LogToClean
from barnabas.storage.cleaning.map_builder import MapBuilder
from barnabas.storage.cleaning.offset_map import SkimpyOffsetMap
from barnabas.storage.cleaning.record_filter import RecordFilter
from barnabas.storage.cleaning.transaction_metadata import CleanedTransactionMetadata
from barnabas.storage.log_loader import LogLoader
from barnabas.storage.segment_files import CLEANED_SUFFIX, SWAP_SUFFIX
from barnabas.storage.segment_swap import SegmentSwap

Patch = pytest.MonkeyPatch
_long = Struct(">q")


@dataclass(frozen=True)
class Mutant:
    """A bug, and who has to find it: random walks, crashes in these scenarios, or a log with offsets far apart."""

    name: str
    plant: Callable[[Patch], None]
    crashes: tuple[str, ...] = ()
    is_far_apart: bool = False


def _nothing(*_: Any, **__: Any) -> None:
    return None


# What stays


def tombstones_dropped_early(patch: Patch) -> None:
    stays = BatchFilter._stays

    def stays_with_a_value(self: BatchFilter, run: Any, row: int, found: int, horizon: int | None) -> bool:
        return run.records.value_sizes[row] >= 0 and stays(self, run, row, found, horizon)

    patch.setattr(BatchFilter, "_stays", stays_with_a_value)


def horizon_taken_for_passed(patch: Patch) -> None:
    stays = BatchFilter._stays

    def stays_without_horizon(self: BatchFilter, run: Any, row: int, found: int, horizon: int | None) -> bool:
        return stays(self, run, row, found, None if horizon is None else self.now_ms)

    patch.setattr(BatchFilter, "_stays", stays_without_horizon)


def horizon_begins_anew(patch: Patch) -> None:
    patch.setattr(batch_filter, "delete_horizon", _nothing)


def horizon_not_written(patch: Patch) -> None:
    batch_of = batch_filter.batch_of
    patch.setattr(batch_filter, "batch_of", lambda run, batch, kept, horizon: batch_of(run, batch, kept, None))


def horizon_loses_timestamps(patch: Patch) -> None:
    def shift_nothing(record: bytes, shift: int) -> bytes:
        return record

    patch.setattr(batch_filter, "_shifted", shift_nothing)


def legacy_tombstones_dropped_early(patch: Patch) -> None:
    patch.setattr(CleaningPass, "_oldest_legacy_tombstones", lambda self: 1 << 62)


def markers_dropped_early(patch: Patch) -> None:
    on_control = RecordFilter.on_control

    def as_if_without_data(self: RecordFilter, batch: Any, has_no_data: bool) -> bool:
        return on_control(self, batch, True)

    patch.setattr(RecordFilter, "on_control", as_if_without_data)


def markers_kept_for_ever(patch: Patch) -> None:
    on_control = RecordFilter.on_control

    def as_if_with_data(self: RecordFilter, batch: Any, has_no_data: bool) -> bool:
        return on_control(self, batch, False)

    patch.setattr(RecordFilter, "on_control", as_if_with_data)


def last_batch_of_a_producer_dropped(patch: Patch) -> None:
    init = RecordFilter.__init__

    def without_producers(self: RecordFilter, job: Any, *arguments: Any, **options: Any) -> None:
        init(self, replace(job, active_producers=()), *arguments, **options)

    patch.setattr(RecordFilter, "__init__", without_producers)


def empty_batch_forgets_its_producer(patch: Patch) -> None:
    empty_batch = batch_filter.empty_batch

    def of_nobody(header: Any) -> bytearray:
        return empty_batch(header._replace(base_sequence=-1))

    patch.setattr(batch_filter, "empty_batch", of_nobody)
    patch.setattr(record_filter, "empty_batch", of_nobody)


def aborted_data_kept(patch: Patch) -> None:
    patch.setattr(CleanedTransactionMetadata, "on_data", lambda *_: False)


def committed_data_dropped(patch: Patch) -> None:
    patch.setattr(CleanedTransactionMetadata, "on_data", lambda *_: True)


def aborted_for_ever(patch: Patch) -> None:
    """The end of an aborted transaction does not end it, so that the producer's next one goes, too."""

    def on_data(self: CleanedTransactionMetadata, batch_end: int, producer_id: int) -> bool:
        self._begin_up_to(batch_end)
        return producer_id in self._aborted

    def on_control_batch(self: CleanedTransactionMetadata, batch: Any) -> bool:
        self._begin_up_to(batch.last_offset)
        return False

    patch.setattr(CleanedTransactionMetadata, "on_data", on_data)
    patch.setattr(CleanedTransactionMetadata, "on_control_batch", on_control_batch)


# How far it goes


def _with_bound(patch: Patch, bound_of: Callable[[LogToClean], int]) -> None:
    job = LogToClean.job

    def job_to_bound(self: LogToClean, *arguments: Any) -> Any:
        return job(replace(self, first_uncleanable_offset=bound_of(self)), *arguments)

    patch.setattr(LogToClean, "job", job_to_bound)


def cleaned_past_the_last_stable_offset(patch: Patch) -> None:
    _with_bound(patch, lambda chosen: chosen.log.active_segment.base_offset)


def active_segment_cleaned(patch: Patch) -> None:
    _with_bound(patch, lambda chosen: max(chosen.first_uncleanable_offset, chosen.log.last_stable_offset))


def young_records_cleaned(patch: Patch) -> None:
    def without_lag(chosen: LogToClean) -> int:
        log = chosen.log
        bound = min(log.last_stable_offset, log.active_segment.base_offset)
        return max(segment.base_offset for segment in log.segments if segment.base_offset <= bound)

    _with_bound(patch, without_lag)


def clean_beyond_the_map(patch: Patch) -> None:
    finished = CleaningPass.finished

    def all_of_it(self: CleaningPass) -> PassFinished:
        return finished(self)._replace(next_dirty_offset=self._job.first_uncleanable_offset)

    patch.setattr(CleaningPass, "finished", all_of_it)


def bound_of_the_map_ignored(patch: Patch) -> None:
    """A map that ended early counts as one of everything: tombstones that it does not know may go."""
    init = BatchFilter.__init__

    def without_bound(self: BatchFilter, **options: Any) -> None:
        init(self, **{**options, "latest_offset": 1 << 62})

    patch.setattr(BatchFilter, "__init__", without_bound)


def map_filled_beyond_its_capacity(patch: Patch) -> None:
    find, init = SkimpyOffsetMap._find, MapBuilder.__init__

    def first_slot_if_full(self: SkimpyOffsetMap, digest: bytes, key: bytes) -> int:
        position = find(self, digest, key)
        return 0 if position is None else position

    def without_limit(self: MapBuilder, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        self._most_keys = 1 << 30

    patch.setattr(SkimpyOffsetMap, "_find", first_slot_if_full)
    patch.setattr(SkimpyOffsetMap, "_has_room", lambda *_: True)
    patch.setattr(SkimpyOffsetMap, "slots", 8, raising=False)
    patch.setattr(MapBuilder, "__init__", without_limit)


def offset_of_a_key_one_too_high(patch: Patch) -> None:
    put = SkimpyOffsetMap.put
    patch.setattr(SkimpyOffsetMap, "put", lambda self, key, offset: put(self, key, offset + 1))


# How it is written


def base_offset_changed(patch: Patch) -> None:
    batch_of = batch_filter.batch_of

    def from_first_kept(run: Any, batch: Any, kept: list[int], horizon: int | None) -> bytearray:
        out: bytearray = batch_of(run, batch, kept, horizon)
        _long.pack_into(out, 0, run.records.offsets[kept[0]])
        return out

    patch.setattr(batch_filter, "batch_of", from_first_kept)


def codec_lost(patch: Patch) -> None:
    compressed_batch = record_filter.compressed_batch
    patch.setattr(record_filter, "compressed_batch", lambda plain, codec: compressed_batch(plain, 0))


def offsets_out_of_reach(patch: Patch) -> None:
    patch.setattr(segment_groups, "MAX_RELATIVE_OFFSET", 1 << 62)
    patch.setattr(cleaned_segment, "MAX_RELATIVE_OFFSET", 1 << 62)


# What a crash finds


def old_segments_go_first(patch: Patch) -> None:
    """The names in the wrong order: what is replaced has its names taken away before the new is known as finished."""
    finish = SegmentSwap.finish

    def prepare(self: SegmentSwap) -> None:
        for base in self._new_bases:
            segment = segment_swap.LogSegment(
                self._directory, base, config=self._config, fs=self._fs, created_ms=0, suffix=CLEANED_SUFFIX
            )
            self.new.append(segment)
            segment.pin()

    def finish_from_cleaned(self: SegmentSwap) -> None:
        for segment in self.old:
            segment.change_suffix(segment_swap.DELETED_SUFFIX)
        self._fs.fsync_dir(self._directory)
        for segment in self.new:
            segment.change_suffix(SWAP_SUFFIX)
        self.old, old = [], self.old
        finish(self)
        self.old = old

    patch.setattr(SegmentSwap, "prepare", prepare)
    patch.setattr(SegmentSwap, "finish", finish_from_cleaned)


def cleaned_taken_for_finished(patch: Patch) -> None:
    load = LogLoader._finish_interrupted_work

    def believe(self: LogLoader) -> list[str]:
        for name in self.fs.list_dir(self.path):
            if name.endswith(CLEANED_SUFFIX):
                path = f"{self.path}/{name}"
                self.fs.rename(path, path.removesuffix(CLEANED_SUFFIX) + SWAP_SUFFIX)
        return load(self)

    patch.setattr(LogLoader, "_finish_interrupted_work", believe)


def swap_not_finished_at_start(patch: Patch) -> None:
    patch.setattr(LogLoader, "_complete_swaps", lambda self, names: self._unlink_all(_swaps(names)))


def _swaps(names: list[str]) -> list[str]:
    return [name for name in names if name.endswith(SWAP_SUFFIX)]


def old_segments_stay_beside_a_swap(patch: Patch) -> None:
    patch.setattr(LogLoader, "_swap_end_offset", lambda self, name: log_loader._base_offset(name))


def cleaned_files_not_synced(patch: Patch) -> None:
    init = CleanedSegment.__init__

    def without_sync(self: CleanedSegment, job: Any, base_offset: int, fs: Any, **options: Any) -> None:
        init(self, job, base_offset, _Unsynced(fs), **options)

    patch.setattr(cleaner, "CleanedSegment", type("Careless", (CleanedSegment,), {"__init__": without_sync}))


class _Unsynced:
    """A file system whose files are never synced."""

    def __init__(self, fs: Any) -> None:
        self._fs = fs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def open(self, *arguments: Any, **options: Any) -> Any:
        return _UnsyncedFile(self._fs.open(*arguments, **options))


class _UnsyncedFile:
    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def fsync(self) -> None:
        """Does nothing."""

    fdatasync = fsync


def names_not_synced(patch: Patch) -> None:
    init = SegmentSwap.__init__

    def without_sync(self: SegmentSwap, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **{**options, "fs": _UnsyncedNames(options["fs"])})

    patch.setattr(SegmentSwap, "__init__", without_sync)


class _UnsyncedNames:
    """A file system whose directories are never synced."""

    def __init__(self, fs: Any) -> None:
        self._fs = fs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def fsync_dir(self, path: str) -> None:
        """Does nothing."""


CRASHES = ("one pass", "into one")

MUTANTS = [
    Mutant("tombstones dropped early", tombstones_dropped_early),
    Mutant("horizon taken for passed", horizon_taken_for_passed),
    Mutant("horizon begins anew", horizon_begins_anew),
    Mutant("horizon not written", horizon_not_written),
    Mutant("horizon loses timestamps", horizon_loses_timestamps),
    Mutant("tombstones of old formats dropped early", legacy_tombstones_dropped_early),
    Mutant("markers dropped early", markers_dropped_early),
    Mutant("markers kept for ever", markers_kept_for_ever),
    Mutant("last batch of a producer dropped", last_batch_of_a_producer_dropped),
    Mutant("empty batch forgets its producer", empty_batch_forgets_its_producer),
    Mutant("aborted data kept", aborted_data_kept),
    Mutant("committed data dropped", committed_data_dropped),
    Mutant("aborted for ever", aborted_for_ever),
    Mutant("cleaned past the last stable offset", cleaned_past_the_last_stable_offset),
    Mutant("active segment cleaned", active_segment_cleaned),
    Mutant("young records cleaned", young_records_cleaned),
    Mutant("clean beyond the map", clean_beyond_the_map),
    Mutant("bound of the map ignored", bound_of_the_map_ignored),
    Mutant("map filled beyond its capacity", map_filled_beyond_its_capacity),
    Mutant("offset of a key one too high", offset_of_a_key_one_too_high),
    Mutant("base offset changed", base_offset_changed),
    Mutant("codec lost", codec_lost),
    Mutant("offsets out of reach", offsets_out_of_reach, is_far_apart=True),
    Mutant("old segments go first", old_segments_go_first, CRASHES),
    Mutant("cleaned taken for finished", cleaned_taken_for_finished, CRASHES),
    Mutant("swap not finished at start", swap_not_finished_at_start, CRASHES),
    Mutant("old segments stay beside a swap", old_segments_stay_beside_a_swap, ("into one",)),
    Mutant("cleaned files not synced", cleaned_files_not_synced, CRASHES),
    Mutant("names not synced", names_not_synced, CRASHES),
]
