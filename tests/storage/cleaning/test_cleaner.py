"""What a pass of the cleaner keeps and how, rule by rule; each by compiled code and by its twin."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.storage.cleaning.dirty_folder import (
    DIRECTORY,
    HOUR_MS,
    NOW_MS,
    DirtyFolder,
    batch_of,
    end_of,
    groups_of,
    marker,
)

from barnabas.protocol.compression import Compression
from barnabas.protocol.legacy_records import build_message_set
from barnabas.protocol.native import native
from barnabas.protocol.record_batch import Batch, LegacyBatch, Record, RecordBatch, TimestampType
from barnabas.storage.cleaning.clean_job import (
    ActiveProducer,
    CleanJob,
    GroupCleaned,
    Progress,
    event_from_json,
    event_to_json,
)
from barnabas.storage.cleaning.cleaner import clean
from barnabas.storage.cleaning.errors import OffsetMapTooSmallError, SegmentOffsetOverflowError
from barnabas.storage.cleaning.offset_map import SkimpyOffsetMap
from barnabas.storage.errors import CorruptSegmentError
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_segment import LogSegment
from barnabas.storage.transaction_index import AbortedTxn, TransactionIndex

ROADS = [False, True] if native is not None else [False]


@pytest.fixture(params=ROADS, ids=lambda native_road: "compiled" if native_road else "python")
def road(request: pytest.FixtureRequest) -> dict[str, bool]:
    return {"use_native": request.param}


@pytest.fixture
def folder() -> DirtyFolder:
    return DirtyFolder()


def v2(batch: Batch) -> RecordBatch:
    assert isinstance(batch, RecordBatch)
    return batch


def test_the_last_record_of_each_key_stays_as_it_was(folder: DirtyFolder, road: dict[str, bool]) -> None:
    folder.add(
        batch_of([(0, b"a", b"0"), (1, b"b", b"1"), (2, b"c", b"2")], partition_leader_epoch=7),
        batch_of([(3, b"a", b"3"), (4, None, b"no key")], producer_id=5, producer_epoch=1, base_sequence=10),
    )
    folder.add(batch_of([(5, b"d", b"5"), (6, b"d", b"6")], log_append_time=NOW_MS + 77))
    before = {record.offset: record for record in folder.records()}
    events = folder.clean(7, **road)
    assert folder.records() == [before[offset] for offset in (1, 2, 3, 6)]
    first, second, third = map(v2, folder.batches())
    assert (first.base_offset, first.last_offset, first.partition_leader_epoch) == (0, 2, 7)
    assert (second.producer_id, second.producer_epoch, second.base_sequence, second.last_sequence) == (5, 1, 10, 11)
    assert (third.max_timestamp, third.timestamp_type) == (NOW_MS + 77, TimestampType.LOG_APPEND_TIME)
    assert first.max_timestamp == NOW_MS + 2
    stats = end_of(events).stats
    assert (stats.messages_read, stats.messages_written, stats.invalid_messages) == (7, 4, 1)
    assert end_of(events).next_dirty_offset == 7
    [group] = groups_of(events)
    assert (group.base_offset, group.replaced) == (0, (0, 5))


def test_a_batch_that_stays_whole_stays_byte_for_byte(folder: DirtyFolder, road: dict[str, bool]) -> None:
    whole = [batch_of([(10 * n, b"%d" % n, b"v"), (10 * n + 3, b"x%d" % n, b"v")], codec=n) for n in range(5)]
    folder.add(*whole)
    folder.clean(44, **road)
    assert [bytes(batch.view) for batch in folder.batches()] == whole


@pytest.mark.parametrize("codec", list(Compression))
def test_codecs_stay(folder: DirtyFolder, road: dict[str, bool], codec: int) -> None:
    folder.add(batch_of([(n, b"%d" % (n % 60), b"v%d" % n) for n in range(100)], codec=codec))
    folder.clean(100, **road)
    [batch] = folder.batches()
    assert batch.codec == codec
    assert [record.value for record in folder.records()] == [b"v%d" % n for n in range(40, 100)]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_tombstones_stay_until_their_horizon(folder: DirtyFolder, road: dict[str, bool], codec: int) -> None:
    folder.add(batch_of([(0, b"a", b"0"), (1, b"a", None), (2, b"b", b"2")], codec=codec, timestamp=NOW_MS - 5))
    folder.add(batch_of([(3, b"c", b"3")]))
    before = folder.records()
    folder.clean(4, **road)
    first = v2(folder.batches()[0])
    assert first.delete_horizon_ms == NOW_MS + HOUR_MS
    assert folder.records() == before[1:]
    # Nothing changes while the time has not come, not even the horizon.
    as_it_was = [bytes(batch.view) for batch in folder.batches()]
    folder.clean(4, first_dirty_offset=3, now_ms=NOW_MS + HOUR_MS - 1, **road)
    assert [bytes(batch.view) for batch in folder.batches()] == as_it_was
    folder.clean(4, first_dirty_offset=3, now_ms=NOW_MS + HOUR_MS, **road)
    assert folder.records() == before[2:]
    assert v2(folder.batches()[0]).delete_horizon_ms == NOW_MS + HOUR_MS
    assert [batch.max_timestamp for batch in folder.batches()] == [NOW_MS - 3, NOW_MS]


def test_a_tombstone_that_loses_its_horizon_batch_still_shadows(folder: DirtyFolder, road: dict[str, bool]) -> None:
    folder.add(batch_of([(0, b"a", b"0")]), batch_of([(1, b"a", None)]), batch_of([(2, b"z", b"2")]))
    folder.clean(3, delete_retention_ms=0, now_ms=NOW_MS, **road)
    assert folder.offsets() == [1, 2]
    folder.clean(3, first_dirty_offset=2, now_ms=NOW_MS, **road)
    assert folder.offsets() == [2]


def transactional(records: list[Any], producer_id: int, **fields: Any) -> bytes:
    return batch_of(
        records, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True, **fields
    )


def test_aborted_data_goes_and_shadows_nothing(folder: DirtyFolder, road: dict[str, bool]) -> None:
    aborted = AbortedTxn(1, 1, 4, 1)
    folder.add(
        batch_of([(0, b"a", b"keep")]),
        transactional([(1, b"a", b"aborted")], 1),
        transactional([(2, b"b", b"committed")], 2),
        transactional([(3, b"b", b"aborted")], 1, codec=Compression.GZIP),
        marker(4, 1, commit=False),
        marker(5, 2, commit=True),
        transactional([(6, b"c", b"later")], 1),
        marker(7, 1, commit=True),
    )
    folder.add(batch_of([(8, b"z", b"z")]))
    folder.clean(9, aborted_transactions=(aborted,), **road)
    assert folder.offsets() == [0, 2, 6, 8]
    assert [batch.base_offset for batch in folder.batches() if batch.is_control] == [4, 5, 7]
    index = TransactionIndex(f"{DIRECTORY}/{0:020d}.txnindex", 0, folder.disk)
    assert index.entries == [aborted]
    # Its data is gone now: the next pass dates the marker, and does not list the transaction any more.
    folder.clean(9, first_dirty_offset=8, aborted_transactions=(aborted,), **road)
    horizons = {batch.base_offset: batch.delete_horizon_ms for batch in folder.batches() if batch.is_control}
    assert horizons == {4: NOW_MS + HOUR_MS, 5: None, 7: None}
    assert not folder.disk.exists(f"{DIRECTORY}/{0:020d}.txnindex")
    [dated] = [v2(batch) for batch in folder.batches() if batch.base_offset == 4]
    assert [record.timestamp for record in dated.records()] == [NOW_MS]
    folder.clean(9, first_dirty_offset=8, now_ms=NOW_MS + HOUR_MS, **road)
    assert [batch.base_offset for batch in folder.batches() if batch.is_control] == [5, 7]
    assert folder.offsets() == [0, 2, 6, 8]


def test_a_transaction_aborted_above_the_cleanable_part_is_aborted(folder: DirtyFolder, road: dict[str, bool]) -> None:
    folder.add(batch_of([(0, b"a", b"keep")]), transactional([(1, b"a", b"aborted")], 1), batch_of([(2, b"z", b"")]))
    folder.clean(3, aborted_transactions=(AbortedTxn(1, 1, 50, 1),), **road)
    assert folder.offsets() == [0, 2]


def test_a_commit_marker_goes_once_its_data_is_overwritten(folder: DirtyFolder, road: dict[str, bool]) -> None:
    folder.add(transactional([(0, b"a", b"old")], 1), marker(1, 1, commit=True))
    folder.add(batch_of([(2, b"a", b"new")]))
    # Passes that remove the data, date the marker, and remove it.
    for now_ms, controls in ((NOW_MS, [1]), (NOW_MS, [1]), (NOW_MS + HOUR_MS, [])):
        folder.clean(3, first_dirty_offset=0, now_ms=now_ms, **road)
        assert [batch.base_offset for batch in folder.batches() if batch.is_control] == controls
    assert folder.offsets() == [2]


def test_a_producer_is_remembered_by_an_empty_batch(folder: DirtyFolder, road: dict[str, bool]) -> None:
    fields: dict[str, Any] = {"producer_epoch": 3, "partition_leader_epoch": 4}
    folder.add(
        batch_of([(0, b"a", b""), (1, b"b", b"")], producer_id=1, base_sequence=20, codec=Compression.LZ4, **fields),
        batch_of([(2, b"a", b""), (3, b"b", b"")], producer_id=2, base_sequence=5, **fields),
        batch_of([(4, b"a", b""), (5, b"b", b"")], producer_id=3, base_sequence=0, **fields),
        transactional([(6, b"b", b"")], 4),
        marker(7, 4, commit=False),
        batch_of([(8, b"a", b""), (9, b"b", b"")]),
    )
    job: dict[str, Any] = {
        "active_producers": (
            ActiveProducer(1, 1, 3),
            ActiveProducer(2, 3, 3),
            ActiveProducer(4, 6, 0),
        ),
        "aborted_transactions": (AbortedTxn(4, 6, 7, 6),),
    }
    for _ in range(2):
        folder.clean(10, **job, **road)
        one, two, four, control, last = map(v2, folder.batches())
        assert [batch.size for batch in (one, two, four)] == [61, 61, 61]
        assert (one.base_offset, one.last_offset, one.last_sequence, one.codec) == (0, 1, 21, 0)
        assert (one.producer_id, one.producer_epoch, one.partition_leader_epoch) == (1, 3, 4)
        assert (two.header.base_timestamp, two.max_timestamp, two.header.record_count) == (-1, NOW_MS + 1, 0)
        assert (four.is_transactional, four.base_offset) == (True, 6)
        assert (control.is_control, last.base_offset) == (True, 8)
    assert folder.offsets() == [8, 9]


def test_a_marker_is_all_that_is_known_of_a_producer(folder: DirtyFolder, road: dict[str, bool]) -> None:
    folder.add(marker(0, 1, commit=True, epoch=2), marker(1, 1, commit=True, epoch=3), batch_of([(2, b"z", b"")]))
    producers = (ActiveProducer(1, -1, 3),)
    for now_ms in (NOW_MS, NOW_MS + HOUR_MS, NOW_MS + 2 * HOUR_MS):
        folder.clean(3, active_producers=producers, now_ms=now_ms, **road)
    empty, last = map(v2, folder.batches())
    assert (empty.producer_epoch, empty.is_control, empty.header.record_count) == (3, True, 0)
    folder.clean(3, **road)
    assert [batch.base_offset for batch in folder.batches()] == [last.base_offset] == [2]


def test_the_last_batch_below_the_uncleanable_part_stays(folder: DirtyFolder, road: dict[str, bool]) -> None:
    folder.add(batch_of([(0, b"a", b"0")]), batch_of([(1, None, b"no key"), (2, None, b"no key")]))
    folder.clean(3, **road)
    assert [(batch.base_offset, batch.last_offset, batch.size) for batch in folder.batches()][1:] == [(1, 2, 61)]


def test_passes_go_as_far_as_the_map_reaches(folder: DirtyFolder, road: dict[str, bool]) -> None:
    for first in range(0, 200, 50):
        folder.add(
            *(
                batch_of([(n, b"%d" % (n % 70), b"%d" % n) for n in range(at, at + 10)])
                for at in range(first, first + 50, 10)
            )
        )
    expected = {b"%d" % (n % 70): n for n in range(200)}
    dirty, ends = 0, []
    while dirty < 200:
        events = folder.clean(200, first_dirty_offset=dirty, dedupe_buffer_bytes=24 * 30, load_factor=0.5, **road)
        assert end_of(events).stats.map_size == min(15, 200 - dirty)
        dirty = end_of(events).next_dirty_offset
        ends.append(dirty)
        latest = {record.key: record.offset for record in folder.records()}
        assert latest == expected
    assert ends[:4] == [15, 30, 45, 60]
    assert folder.offsets() == sorted(expected.values())


@pytest.mark.parametrize("hash_name", ["MD5", "exact"])
def test_a_map_without_room_for_anything_says_so(folder: DirtyFolder, road: dict[str, bool], hash_name: str) -> None:
    folder.add(batch_of([(0, None, b"x"), (1, b"k" * 1000, b"1"), (2, b"b", b"2")]))
    fields: dict[str, Any] = {"hash_name": hash_name, "dedupe_buffer_bytes": 640, "load_factor": 0.9, **road}
    if hash_name == "MD5":
        fields["load_factor"] = 0.01
    with pytest.raises(OffsetMapTooSmallError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        folder.clean(3, first_dirty_offset=1, **fields)
    assert end_of(folder.clean(3, **fields)).next_dirty_offset == 1


@pytest.mark.parametrize("load_factor", [0.9, 0.2, 0.01])
def test_a_small_log_needs_one_pass_however_empty_the_map_has_to_be(
    folder: DirtyFolder, road: dict[str, bool], load_factor: float
) -> None:
    folder.add(batch_of([(n, b"%d" % n, b"x") for n in range(4)]))
    assert end_of(folder.clean(1, load_factor=load_factor, **road)).next_dirty_offset >= 1
    assert end_of(folder.clean(4, load_factor=load_factor, **road)).next_dirty_offset == 4


def test_segments_become_one_within_the_limits(folder: DirtyFolder, road: dict[str, bool]) -> None:
    for n in range(6):
        folder.add(batch_of([(n, b"%d" % n, bytes(100))]))
    size = folder.segments[0].size
    events = folder.clean(6, segment_bytes=3 * size, **road)
    assert [group.replaced for group in groups_of(events)] == [(0, 1, 2), (3, 4, 5)]
    assert [segment.base_offset for segment in folder.segments] == [0, 3]


def test_segments_whose_indexes_are_full_stay_apart(folder: DirtyFolder, road: dict[str, bool]) -> None:
    for n in range(4):
        folder.add(batch_of([(n, b"%d" % n, b"v")]))
        folder.write(f"{DIRECTORY}/{n:020d}.timeindex", bytes(12 * 3))
    events = folder.clean(4, segment_index_bytes=80, **road)
    assert [group.replaced for group in groups_of(events)] == [(0, 1), (2, 3)]


def test_offsets_out_of_reach_stay_apart(folder: DirtyFolder, road: dict[str, bool]) -> None:
    far = 2**31
    folder.add(batch_of([(0, b"a", b"0")]))
    folder.add(base_offset=5)
    folder.add(batch_of([(far - 2, b"b", b"1")]), base_offset=6)
    folder.add(batch_of([(far, b"c", b"2")]))
    events = folder.clean(far + 1, dedupe_buffer_bytes=2400, **road)
    assert [group.replaced for group in groups_of(events)] == [(0, 5, 6), (far,)]
    assert folder.offsets() == [0, far - 2, far]


def test_a_segment_with_offsets_out_of_reach_is_refused(folder: DirtyFolder, road: dict[str, bool]) -> None:
    folder.add(batch_of([(0, b"a", b"0")]), batch_of([(2**31, b"b", b"1")]))
    with pytest.raises(SegmentOffsetOverflowError, match="2147483648"):
        folder.clean(2**31 + 1, dedupe_buffer_bytes=2400, **road)


def test_indexes_are_those_of_a_rebuild(folder: DirtyFolder, road: dict[str, bool]) -> None:
    for first in range(0, 400, 100):
        folder.add(
            *(
                batch_of([(n, b"%d" % (n % 150), bytes(300))], timestamp=NOW_MS + n * 7919 % 1000, codec=n % 5)
                for n in range(first, first + 100)
            )
        )
    folder.clean(400, index_interval_bytes=1000, io_buffer_bytes=1500, **road)
    [segment] = folder.segments
    offset_index, time_index = (folder.read(0, suffix) for suffix in (".index", ".timeindex"))
    assert len(offset_index) > 8 * 10
    assert len(time_index) > 12
    config = replace(LogConfig(), index_interval_bytes=1000)
    rebuilt = LogSegment(DIRECTORY, 0, config=config, fs=folder.disk, created_ms=0, size=segment.size)
    rebuilt.indexes.rebuild()
    rebuilt.close_handles()
    assert (folder.read(0, ".index"), folder.read(0, ".timeindex")) == (offset_index, time_index)


def test_a_cleaned_segment_is_as_old_as_the_last_it_replaces(folder: DirtyFolder, road: dict[str, bool]) -> None:
    folder.add(batch_of([(0, b"a", b"")]), modified_ms=1000)
    folder.add(batch_of([(1, b"a", b"")]), modified_ms=2000)
    folder.clean(2, **road)
    assert folder.disk.modified_ms(f"{DIRECTORY}/{0:020d}.log") == 2000


def test_batches_larger_than_the_buffer(folder: DirtyFolder, road: dict[str, bool]) -> None:
    folder.add(*(batch_of([(n, b"%d" % (n % 2), bytes(size))]) for n, size in enumerate((10, 5000, 1, 100_000, 3))))
    folder.clean(5, io_buffer_bytes=64, **road)
    assert folder.offsets() == [3, 4]


def test_bytes_that_are_no_batch_end_the_pass(folder: DirtyFolder, road: dict[str, bool]) -> None:
    good = batch_of([(0, b"a", b"0"), (1, b"b", b"1")])
    cases: list[Callable[[bytearray], object]] = [
        lambda data: data.__setitem__(len(data) - 1, data[-1] ^ 1),
        lambda data: data.__setitem__(slice(8, 12), b"\x7f\0\0\0"),
        lambda data: data.__setitem__(slice(8, 12), b"\xff\0\0\0"),
        lambda data: data.__setitem__(16, 3),
        lambda data: data.__delitem__(slice(-3, None)),
    ]
    for damage in cases:
        damaged = DirtyFolder()
        bad = bytearray(batch_of([(2, b"a", b"2")]))
        damage(bad)
        damaged.add(good, bytes(bad), base_offset=0)
        with pytest.raises(CorruptSegmentError, match=rf"at position {len(good)}"):
            damaged.clean(3, **road)
        assert damaged.unfinished() == {}


def legacy(records: list[tuple[int, bytes | None, bytes | None]], magic: int, **fields: Any) -> bytes:
    made = [Record(offset, NOW_MS + offset if magic else -1, key, value) for offset, key, value in records]
    return build_message_set(made, magic=magic, **fields)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
def test_old_formats(folder: DirtyFolder, road: dict[str, bool], magic: int, codec: int) -> None:
    data: list[tuple[int, bytes | None, bytes | None]] = [
        (n, b"%d" % (n % 7) if n % 5 else None, b"v%d" % n) for n in range(20)
    ]
    folder.add(legacy(data[:10], magic, codec=codec), legacy(data[10:], magic, codec=codec), base_offset=0)
    folder.add(batch_of([(20, b"1", b"v2"), (21, b"z", b"")]))
    before = {record.offset: record for record in folder.records()}
    latest = {key: offset for offset, key, _ in data if key is not None} | {b"1": 20, b"z": 21}
    events = folder.clean(22, **road)
    assert folder.records() == [before[offset] for offset in sorted(latest.values())]
    assert {batch.magic for batch in folder.batches()} == {magic, 2}
    assert {batch.codec for batch in folder.batches() if batch.magic == magic} == {codec}
    assert end_of(events).stats.invalid_messages == 4


def test_a_wrapper_keeps_its_times(folder: DirtyFolder, road: dict[str, bool]) -> None:
    fields: dict[str, Any] = {"codec": Compression.GZIP, "timestamp_type": TimestampType.LOG_APPEND_TIME}
    folder.add(legacy([(3, b"a", b"x"), (4, b"b", b"x"), (6, b"a", b"y")], 1, **fields), base_offset=0)
    folder.clean(7, **road)
    [wrapper] = folder.batches()
    assert isinstance(wrapper, LegacyBatch)
    assert (wrapper.last_offset, wrapper.timestamp_type) == (6, TimestampType.LOG_APPEND_TIME)
    assert folder.records() == [Record(4, NOW_MS + 6, b"b", b"x"), Record(6, NOW_MS + 6, b"a", b"y")]


def test_tombstones_of_old_formats_go_with_the_age_of_their_segment(folder: DirtyFolder, road: dict[str, bool]) -> None:
    folder.add(legacy([(0, b"a", None)], 1), base_offset=0, modified_ms=NOW_MS - 3 * HOUR_MS)
    folder.add(legacy([(1, b"b", None)], 1), base_offset=1, modified_ms=NOW_MS - HOUR_MS // 2)
    folder.add(legacy([(2, b"c", b"c")], 1), base_offset=2, modified_ms=NOW_MS)
    folder.clean(3, swap=False, **road)
    assert groups_of(folder.clean(3, **road))
    assert folder.offsets() == [0, 1, 2]
    other = DirtyFolder()
    other.add(legacy([(0, b"a", None)], 1), base_offset=0, modified_ms=NOW_MS - 3 * HOUR_MS)
    other.add(legacy([(1, b"b", None)], 1), base_offset=1, modified_ms=NOW_MS - HOUR_MS // 2)
    other.add(legacy([(2, b"c", b"c")], 1), base_offset=2, modified_ms=NOW_MS)
    other.clean(3, first_dirty_offset=2, **road)
    assert other.offsets() == [1, 2]


def test_groups_may_take_their_places_while_the_pass_goes_on(folder: DirtyFolder, road: dict[str, bool]) -> None:
    for n in range(5):
        folder.add(batch_of([(n, b"%d" % (n % 4), b"v")]))
    job = folder.job(5, segment_bytes=1, first_dirty_offset=3)
    asked: list[int] = []
    events = []
    for event in clean(job, folder.disk, asked.append, **road):
        events.append(event)
        if isinstance(event, GroupCleaned):
            folder.swap([event])
    assert folder.offsets() == [1, 2, 3, 4]
    stats = end_of(events).stats
    assert sum(asked) == stats.map_bytes_read + stats.bytes_read + stats.bytes_written
    assert stats.bytes_read == sum(segment.size for segment in job.segments)


def test_a_pass_that_ends_early_leaves_nothing_but_its_own(folder: DirtyFolder, road: dict[str, bool]) -> None:
    for n in range(3):
        folder.add(batch_of([(n, b"a", b"v")]))
    before = folder.batches()
    one_pass = clean(folder.job(3), folder.disk, lambda _: None, **road)
    phases: list[str] = []
    while "clean" not in phases:
        event = next(one_pass)
        assert isinstance(event, Progress)
        phases.append(event.phase)
    one_pass.close()  # type: ignore[attr-defined]
    assert folder.disk.open_files == 0
    assert folder.unfinished()
    assert [bytes(batch.view) for batch in folder.batches()] == [bytes(batch.view) for batch in before]
    folder.write(f"{DIRECTORY}/{77:020d}.index.cleaned", b"left")
    folder.clean(3, **road)
    assert folder.unfinished() == {}
    assert folder.offsets() == [2]
    assert folder.disk.open_files == 0


def test_the_memory_of_a_pass_goes_with_it(folder: DirtyFolder, road: dict[str, bool]) -> None:
    folder.add(batch_of([(0, b"a", b"v")]), transactional([(1, b"b", b"v")], 1), marker(2, 1, commit=True))

    def maps() -> int:
        return sum(isinstance(one, SkimpyOffsetMap) for one in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = maps()
        folder.clean(3, **road)
        assert maps() == before
    finally:
        gc.enable()


def test_jobs_and_events_go_through_a_pipe(folder: DirtyFolder) -> None:
    folder.add(batch_of([(0, b"a", b"v"), (1, b"a", b"v")]))
    job = folder.job(2, active_producers=(ActiveProducer(1, 2, 3),), aborted_transactions=(AbortedTxn(1, 2, 3, 4),))
    assert CleanJob.from_json(job.to_json()) == job
    events = list(clean(job, folder.disk, lambda _: None))
    assert [event_from_json(event_to_json(event)) for event in events] == events
    assert "\n" not in job.to_json() + "".join(map(event_to_json, events))
    with pytest.raises(ValueError, match="Other"):
        event_from_json('{"event":"Other"}')


@pytest.mark.parametrize("use_native", [True, False])
def test_a_decompressed_record_beyond_the_maximum_fails_the_pass(use_native: bool) -> None:
    folder = DirtyFolder()
    folder.add(batch_of([(0, b"a", b"x" * 500), (1, b"a", b"y")], codec=Compression.GZIP))
    before = folder.read(0, ".log")
    with pytest.raises(CorruptSegmentError, match="exceeds the configured maximum record size of 400"):
        folder.clean(2, use_native=use_native, max_decompressed_message_bytes=400)
    assert folder.read(0, ".log") == before
    folder.clean(2, use_native=use_native, max_decompressed_message_bytes=600)
    assert [record.value for batch in folder.batches() for record in batch.records()] == [b"y"]
