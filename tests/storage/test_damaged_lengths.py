"""Lengths of batches that cannot be: nobody who walks over a log loops for ever, skips records or reads beyond."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from struct import pack
from types import FrameType

import pytest
from tests.cases import in_one_test
from tests.storage.logs import NOW_MS, append, open_log, retain

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.legacy_records import build_message_set
from barnabas.protocol.record import Record, TimestampType
from barnabas.protocol.record_batch import BATCH_HEADER, iter_batches
from barnabas.simulation.disk import SimDisk
from barnabas.storage.batch_scan import BatchScan
from barnabas.storage.cleaning.batch_index import index_batches, nothing_indexed
from barnabas.storage.cleaning.batch_walk import BatchWalk
from barnabas.storage.cleaning.segment_reader import SegmentReader
from barnabas.storage.cleaning.transaction_metadata import CleanedTransactionMetadata
from barnabas.storage.dump import dump_file
from barnabas.storage.errors import CorruptSegmentError
from barnabas.storage.file_records import FileRecords
from barnabas.storage.log import Log
from barnabas.storage.record_conversion import down_convert

PATH = "/data/t-0"
LOG = f"{PATH}/{0:020d}.log"
BATCHES = 12
SECONDS = 60
LAST_OFFSET_DELTA_POSITION = BATCH_HEADER.at("last_offset_delta")
LENGTHS = [-12, -100, 0, 1, 13, 14, 48, 2**31 - 1, -(2**31)]


@pytest.fixture(autouse=True)
def no_endless_loop() -> Iterator[None]:
    """A walk that does not end fails the test instead of holding up all of them."""

    def fail(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"still busy after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def written(disk: SimDisk, number: int, length: int, *, stays_open: bool) -> Log:
    """A log of several batches, and one more segment; batch `number` of the first one states another length."""
    disk.make_dirs("/data")
    log = open_log(PATH, fs=disk, index_interval_bytes=150)
    positions = []
    for _ in range(BATCHES):
        positions.append(log.active_segment.size)
        append(log, size=30)
    if not stays_open:
        log.roll()
        append(log, size=30)
        log.close()
    log.update_high_watermark(log.log_end_offset)
    disk.overwrite(LOG, positions[number] + 8, pack(">i", length))
    if not stays_open:
        log = open_log(PATH, fs=disk, index_interval_bytes=150)
        log.update_high_watermark(log.log_end_offset)
    return log


def corrupt(call: Callable[[], object]) -> None:
    with pytest.raises(KafkaError) as raised:
        call()
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


@in_one_test("length", LENGTHS)
@in_one_test("number", [0, 5, BATCHES - 1])
@in_one_test("stays_open", [True, False])
def test_reads(number: int, length: int, stays_open: bool) -> None:
    log = written(SimDisk(), number, length, stays_open=stays_open)
    for limit in (1, 20, 27, 150, 100_000):
        for options in (
            {},
            {"min_one_message": True},
            {"hard_limit": True},
            {"min_one_message": True, "as_file_slice": True},
        ):
            corrupt(lambda limit=limit, options=options: log.read(number, limit, **options))  # type: ignore[misc]
    seen = set()
    for offset in range(log.log_end_offset):
        try:
            records = log.read(offset, 200, min_one_message=True).data
        except KafkaError as error:
            assert error.code is ErrorCode.CORRUPT_MESSAGE
            continue
        first = next(iter_batches(records))
        assert first.base_offset == offset and first.is_valid, "a reader gets what it asked for, or an error"
        seen.add(offset)
    assert seen >= set(range(number)), "what lies before is served"
    assert number not in seen


@in_one_test("length", LENGTHS)
def test_places_and_times(length: int) -> None:
    log = written(SimDisk(), 5, length, stays_open=False)
    corrupt(lambda: log.convert_to_offset_metadata(5))
    corrupt(lambda: log.fetch_offset_by_timestamp(NOW_MS + 1))
    assert log.convert_to_offset_metadata(2).offset == 2


@in_one_test("length", LENGTHS)
def test_retention_lets_a_damaged_segment_go(length: int) -> None:
    disk = SimDisk()
    log = written(disk, BATCHES - 1, length, stays_open=False)
    log.config = replace(log.config, retention_bytes=100)
    assert any(LOG in path for path in retain(log))
    assert log.log_start_offset == BATCHES


@in_one_test("length", LENGTHS)
@in_one_test("number", [0, 5, BATCHES - 1])
def test_an_unclean_start_cuts_and_a_clean_one_does_not_serve(number: int, length: int) -> None:
    disk = SimDisk()
    log = written(disk, number, length, stays_open=True)
    log.close_handles()
    if number == BATCHES - 1:
        with pytest.raises(CorruptSegmentError):
            open_log(PATH, fs=disk, index_interval_bytes=150)
    log = open_log(PATH, fs=disk, index_interval_bytes=150, clean=False)
    assert log.log_end_offset == number
    assert [append(log), append(log)] == [number, number + 1]


def test_a_batch_cut_off_by_hand_is_not_written_behind() -> None:
    disk = SimDisk()
    log = written(disk, 0, 91, stays_open=True)
    log.close()
    size = disk.size(LOG)
    disk.cut(LOG, size - 5)
    with pytest.raises(CorruptSegmentError, match="no whole record batch"):
        open_log(PATH, fs=disk, index_interval_bytes=150)


@in_one_test("length", LENGTHS)
def test_producer_state_is_not_rebuilt_over_a_hole(length: int) -> None:
    disk = SimDisk()
    written(disk, 5, length, stays_open=False).close_handles()
    for name in disk.list_dir(PATH):
        if name.endswith(".snapshot"):
            disk.unlink(f"{PATH}/{name}")
    with pytest.raises(CorruptSegmentError):
        open_log(PATH, fs=disk, index_interval_bytes=150, clean=False, recovery_point=BATCHES + 1)


@in_one_test("length", LENGTHS)
@in_one_test("use_native", [True, False])
def test_cleaning(length: int, use_native: bool) -> None:
    disk = SimDisk()
    written(disk, 5, length, stays_open=False)
    reader = SegmentReader(FileRecords(LOG, disk), 0, 400, lambda size: None)
    walk = BatchWalk(CleanedTransactionMetadata([]), use_native=use_native)

    class Visitor:
        def on_run(self, *_: object) -> bool:
            return True

        on_aborted = on_control = on_legacy = on_run

    with pytest.raises(CorruptSegmentError):
        while data := reader.read():
            end = walk.walk(data, reader, Visitor())
            assert end is not None
            reader.advance(end)
    whole = memoryview(disk.read_bytes(LOG))
    assert index_batches(whole, 0, nothing_indexed(0), use_native=use_native).last_offset == 4


@pytest.mark.parametrize("base_offset", [2**63 - 1, 2**63 - 1 - 2**31])
def test_offsets_beyond_the_last_one_that_can_be(base_offset: int) -> None:
    disk = SimDisk()
    disk.make_dirs("/data")
    log = open_log(PATH, fs=disk)
    for _ in range(BATCHES):
        append(log)
    positions = [batch.position for batch in log.active_segment.records.batch_positions()]
    disk.overwrite(LOG, positions[5], pack(">q", base_offset))
    disk.overwrite(LOG, positions[5] + LAST_OFFSET_DELTA_POSITION, pack(">i", 2**31 - 1))
    with pytest.raises(CorruptSegmentError) if base_offset == 2**63 - 1 else nullcontext():
        assert len(list(FileRecords(LOG, disk).batch_positions())) == BATCHES
    whole = memoryview(disk.read_bytes(LOG))
    found = [index_batches(whole, 0, nothing_indexed(0), use_native=use_native) for use_native in (True, False)]
    assert found[0] == found[1]
    assert found[0].last_offset == (4 if base_offset == 2**63 - 1 else base_offset + 2**31 - 1)


@pytest.mark.parametrize("length", LENGTHS)
def test_what_walks_in_memory(length: int, tmp_path: Path) -> None:
    disk = SimDisk()
    written(disk, 5, length, stays_open=True).flush()
    found = [entry.kind for entry in dump_file(disk, LOG)]
    assert found[:6] == ["batch"] * 5 + ["problem"] and set(found[6:]) == {"batch"}, "and it goes on behind the damage"
    data = disk.read_bytes(LOG)
    if length != 2**31 - 1:  # which is how the last batch of an answer looks that was cut off
        # The batches before the damaged one are converted; its error comes with the next fetch.
        damaged = 5 * (len(data) // BATCHES)
        corrupt(lambda: down_convert(data[damaged:], 1, fetch_offset=5))


@pytest.mark.parametrize("magic", [0, 1])
def test_the_smallest_messages_are_found(magic: int) -> None:
    disk = SimDisk()
    disk.make_dirs("/data")
    records = [Record(offset, NOW_MS, None, b"" if offset % 2 else None, ()) for offset in range(6)]
    data = build_message_set(records, magic=magic, codec=0, timestamp_type=TimestampType.CREATE_TIME)
    disk.open("/data/x.log", create=True).pwrite(bytes(data), 0)
    file = FileRecords("/data/x.log", disk)
    assert [one.last_offset for one in file.batch_positions()] == list(range(6))
    size = len(data) // 6
    for offset in range(6):
        scan = BatchScan(file, offset, 1, file.size, min_one_message=True, hard_limit=False, as_file_slice=False)
        assert scan.read_from(0, 0) == (data[size * offset : size * (offset + 1)], size * offset)
