"""A log against a list: whatever is appended, cut, expired or reopened, reads give what the list has."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.storage.logs import NOW_MS, Clock, batch, open_log, retain

from barnabas.protocol.record_batch import iter_batches
from barnabas.simulation.disk import SimDisk


class LogAgainstList(RuleBasedStateMachine):
    """`batches` lists (base offset, last offset, first timestamp) of what the log should hold, oldest first."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimDisk(keep_log=False)
        self.disk.make_dirs("/logs")
        self.clock = Clock()
        self.batches: list[tuple[int, int, int]] = []
        self.log_end_offset = 0
        self.log_start_offset = 0
        self.epoch = 0
        self.settings: dict[str, Any] = {}

    @initialize(
        segment_bytes=st.integers(300, 3000), interval=st.integers(0, 500), index_bytes=st.sampled_from([64, 120, 4096])
    )
    def open(self, segment_bytes: int, interval: int, index_bytes: int) -> None:
        self.settings = {
            "segment_bytes": segment_bytes,
            "index_interval_bytes": interval,
            "segment_index_bytes": index_bytes,
            "retention_ms": 100_000,
        }
        self.log = open_log("/logs/topic-0", fs=self.disk, clock=self.clock, **self.settings)

    def teardown(self) -> None:
        self.log.close_handles()
        assert self.disk.open_files == 0

    @rule(
        count=st.integers(1, 4),
        size=st.integers(0, 30),
        age=st.sampled_from([0, 0, 0, 5, 1_000_000]),
        producer_id=st.sampled_from([-1, -1, 7, 8]),
    )
    def append(self, count: int, size: int, age: int, producer_id: int) -> None:
        timestamp = NOW_MS - age
        fields: dict[str, Any] = {}
        if producer_id >= 0:
            known = self.log.producer_state.producers.get(producer_id)
            sequence = 0 if known is None else known.last_sequence + 1
            fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        info = self.log.append_as_leader(
            batch(count, size=size, timestamp=timestamp, **fields), leader_epoch=self.epoch
        )
        assert (info.first_offset, info.last_offset) == (self.log_end_offset, self.log_end_offset + count - 1)
        self.batches.append((info.first_offset, info.last_offset, timestamp))
        self.log_end_offset = info.last_offset + 1

    @rule()
    def new_leader_epoch(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == self.log_end_offset

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        target = data.draw(st.sampled_from([base for base, _, _ in self.batches]))
        self.log.truncate_to(target)
        self.batches = [entry for entry in self.batches if entry[0] < target]
        self.log_end_offset = target
        self.log_start_offset = min(self.log_start_offset, target)

    @precondition(lambda self: len(self.batches) > 20)
    @rule(offset=st.integers(0, 1000))
    def start_over(self, offset: int) -> None:
        self.log.truncate_fully_and_start_at(offset)
        self.batches = []
        self.log_end_offset = self.log_start_offset = offset

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        target = data.draw(st.integers(self.log_start_offset, self.log_end_offset))
        self.log.update_high_watermark(self.log_end_offset)
        assert self.log.maybe_increment_log_start_offset(target) == (target > self.log_start_offset)
        self.log_start_offset = target

    @rule()
    def apply_retention(self) -> None:
        self.log.update_high_watermark(self.log_end_offset)
        retain(self.log)
        self.log_start_offset = max(self.log_start_offset, self.log.log_start_offset)
        first_base = self.log.segments[0].base_offset
        gone = [entry for entry in self.batches if entry[0] < first_base]
        assert all(last < self.log_start_offset or stamp < NOW_MS - 100_000 for _, last, stamp in gone)

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        producers = {key: entry.last_sequence for key, entry in self.log.producer_state.producers.items()}
        if clean:
            self.log.close()
        else:
            self.log.close_handles()
        self.log = open_log(
            "/logs/topic-0",
            fs=self.disk,
            clock=self.clock,
            clean=clean,
            recovery_point=self.log.recovery_point,
            log_start_offset=self.log_start_offset,
            **self.settings,
        )
        assert self.log.recovery_point == self.log.log_end_offset
        # Recovery goes through whole segments: it may find producers again that wrote below the log start only.
        now = {
            key: entry.last_sequence
            for key, entry in self.log.producer_state.producers.items()
            if key in producers or entry.last_offset >= self.log_start_offset
        }
        expected = {key: sequence for key, sequence in producers.items() if key in now}
        assert now == expected

    @invariant()
    def offsets_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.log_start_offset, self.log_end_offset)
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
        assert log.recovery_point <= log.log_end_offset
        log.check_invariants()

    @rule(data=st.data(), max_length=st.integers(0, 2000), min_one=st.booleans(), hard=st.booleans())
    def read(self, data: st.DataObject, max_length: int, min_one: bool, hard: bool) -> None:
        offset = data.draw(st.integers(self.log_start_offset, self.log_end_offset))
        bound = data.draw(st.sampled_from([self.log_end_offset, *[base for base, _, _ in self.batches]]))
        min_one = min_one and not hard
        found = self.log.read(offset, max_length, max_offset=bound, min_one_message=min_one, hard_limit=hard)
        expected = [entry for entry in self.batches if entry[1] >= offset and entry[1] < bound]
        whole = [(entry.base_offset, entry.last_offset) for entry in iter_batches(found.data)]
        assert whole == [entry[:2] for entry in expected[: len(whole)]]
        if offset < bound and expected and min_one:
            assert whole, "at least one batch was asked for"
        if not min_one:
            assert len(found.records) <= max_length
        if not hard and found.records:
            assert whole, "a part of a batch is for nobody but who wants a hard limit"
        if hard and offset < bound and expected:
            assert found.records or not max_length
        if found.records:
            segment = next(s for s in self.log.segments if s.base_offset == found.first.segment_base_offset)
            assert segment.records.pread(len(found.records), found.first.position) == bytes(found.data)

    @rule(age=st.integers(-5, 10))
    def find_by_timestamp(self, age: int) -> None:
        found = self.log.fetch_offset_by_timestamp(NOW_MS - age)
        records = [
            (stamp + index, base + index)
            for base, last, stamp in self.batches
            for index in range(last - base + 1)
            if base + index >= self.log_start_offset
        ]
        expected = next(((stamp, offset) for stamp, offset in records if stamp >= NOW_MS - age), None)
        assert (None if found is None else tuple(found)) == expected

    @rule()
    def indexes_point_at_batches(self) -> None:
        for segment in self.log.segments:
            starts = {header.position: header for header in segment.records.batch_positions()}
            index = segment.indexes.offset
            for slot in range(index.entries):
                entry = index.entry(slot)
                assert starts[entry.position].last_offset == entry.offset
            times = [segment.indexes.time.entry(slot) for slot in range(segment.indexes.time.entries)]
            assert times == sorted(set(times))


LogAgainstList.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestLogAgainstList = LogAgainstList.TestCase
