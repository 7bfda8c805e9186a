"""The cleaner's compiled code and its twin in Python do the same, whatever the bytes; and both do what a model does."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.foreign_tools import skip_or_fail
from tests.storage.cleaning.dirty_folder import NOW_MS, DirtyFolder, batch_of, marker

from barnabas.protocol.batch_header import write_crc
from barnabas.protocol.legacy_records import build_message_set
from barnabas.protocol.native import native
from barnabas.protocol.record_batch import CRC_POSITION, Record
from barnabas.storage.cleaning.batch_index import IndexScan, index_batches
from barnabas.storage.cleaning.clean_job import ActiveProducer
from barnabas.storage.errors import CorruptSegmentError
from barnabas.storage.transaction_index import AbortedTxn

compiled = pytest.mark.usefixtures("speedups")


@pytest.fixture(scope="module")
def speedups() -> None:
    if native is None:
        skip_or_fail("no compiled speedups: install with a C compiler")


class History:
    """A random log of all kinds of batches, and what has to be left of its keys."""

    def __init__(self, seed: int, *, codecs: bool, damage: float = 0.0) -> None:
        self._rng = random.Random(seed)
        self._codecs = codecs
        self._damage = damage
        self.offset = self._rng.choice((0, 0, 7, 2**40))
        self.latest: dict[bytes, tuple[int, bytes | None]] = {}
        self.aborted: list[AbortedTxn] = []
        self.producers: dict[int, int] = {}
        self.dirty_from = self.offset
        self.folder = DirtyFolder()
        for number in range(self._rng.randrange(1, 5)):
            start = self.offset
            if self._rng.random() < 0.3 and number:
                self.dirty_from = start
            batches = [self._batch() for _ in range(self._rng.randrange(0, 12))]
            self.folder.add(*(batch for part in batches for batch in part), base_offset=start)
            self.offset += self._rng.choice((1, 1, 50))

    def _items(self) -> list[tuple[int, bytes | None, bytes | None]]:
        rng, items = self._rng, []
        for _ in range(rng.choice((1, 2, 5, 30))):
            key = None if rng.random() < 0.03 else b"k%d" % rng.randrange(40)
            value = None if rng.random() < 0.15 else rng.randbytes(rng.choice((0, 3, 60, 200)))
            items.append((self.offset, key, value))
            self.offset += 1 if rng.random() < 0.9 else 1 + rng.randrange(5)
        return items

    def _took(self, items: list[tuple[int, bytes | None, bytes | None]]) -> None:
        self.latest |= {key: (offset, value) for offset, key, value in items if key is not None}

    def _batch(self) -> list[bytes]:
        rng, items = self._rng, self._items()
        kind = rng.random()
        codec = rng.randrange(5) if self._codecs else 0
        if kind < 0.15 and self.offset < 2**31:
            self._took(items)
            magic = rng.randrange(2)
            made = [Record(o, NOW_MS - rng.randrange(1000) if magic else -1, k, v) for o, k, v in items]
            return [build_message_set(made, magic=magic, codec=codec % 4)]
        fields: dict[str, Any] = {
            "codec": codec,
            "timestamp": NOW_MS - rng.randrange(10_000),
            "step": rng.randrange(-70, 99),
        }
        if rng.random() < 0.2:
            fields["log_append_time"] = NOW_MS
        if kind < 0.6:
            self._took(items)
            return [self._maybe_damaged(batch_of(items, **fields))]
        producer = rng.randrange(4)
        fields |= {"producer_id": producer, "producer_epoch": 0, "base_sequence": items[0][0] % 1000}
        self.producers[producer] = items[-1][0]
        if kind < 0.75:
            self._took(items)
            return [self._maybe_damaged(batch_of(items, **fields))]
        commit = rng.random() < 0.5
        if commit:
            self._took(items)
        else:
            self.aborted.append(AbortedTxn(producer, items[0][0], self.offset, items[0][0]))
        self.offset += 1
        return [batch_of(items, is_transactional=True, **fields), marker(self.offset - 1, producer, commit=commit)]

    def _maybe_damaged(self, batch: bytes) -> bytes:
        if self._rng.random() >= self._damage:
            return batch
        wrong = bytearray(batch)
        for _ in range(self._rng.randrange(1, 4)):
            at = self._rng.randrange(CRC_POSITION + 4, len(wrong))
            wrong[at] = self._rng.choice((0, 0x7F, 0x80, 0xFF, wrong[at] ^ 1 << self._rng.randrange(8)))
        if self._rng.random() < 0.9:
            write_crc(memoryview(wrong))
        return bytes(wrong)

    def outcome(self, *, use_native: bool, **fields: Any) -> Any:
        """What a pass says and writes, or how it fails."""
        producers = tuple(ActiveProducer(producer, last, 0) for producer, last in self.producers.items())
        try:
            events = self.folder.clean(
                self.offset,
                use_native=use_native,
                swap=False,
                active_producers=producers,
                aborted_transactions=tuple(self.aborted),
                first_dirty_offset=self.dirty_from,
                **fields,
            )
        except CorruptSegmentError as error:
            return str(error).partition(" (")[0]
        return events, self.folder.unfinished()


@compiled
@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    damage=st.sampled_from([0.0, 0.0, 0.1]),
    buffer_bytes=st.sampled_from([100, 1000, 2**19]),
    hash_name=st.sampled_from(["MD5", "exact", "SHA-1"]),
    memory=st.sampled_from([700, 2400, 10**6]),
    later_ms=st.sampled_from([0, 10**7]),
)
def test_both_roads_write_the_same_bytes(
    seed: int, damage: float, buffer_bytes: int, hash_name: str, memory: int, later_ms: int
) -> None:
    history = History(seed, codecs=seed % 2 == 0, damage=damage)
    job: dict[str, Any] = {
        "io_buffer_bytes": buffer_bytes,
        "hash_name": hash_name,
        "dedupe_buffer_bytes": memory,
        "now_ms": NOW_MS + later_ms,
        "segment_bytes": 4000,
        "index_interval_bytes": 300,
    }
    assert history.outcome(use_native=True, **job) == history.outcome(use_native=False, **job)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), memory=st.sampled_from([700, 10**6]), use_native=st.booleans())
def test_every_key_keeps_its_last_value(seed: int, memory: int, use_native: bool) -> None:
    history = History(seed, codecs=True)
    folder, dirty = history.folder, 0
    for _ in range(100):
        events = folder.clean(
            history.offset,
            first_dirty_offset=dirty,
            dedupe_buffer_bytes=memory,
            aborted_transactions=tuple(history.aborted),
            use_native=use_native and native is not None,
        )
        offsets = folder.offsets()
        assert offsets == sorted(set(offsets))
        dirty = events[-1].next_dirty_offset  # type: ignore[union-attr]
        if dirty == history.offset:
            break
    assert dirty == history.offset
    left = {record.key: (record.offset, record.value) for record in folder.records()}
    assert left == history.latest
    assert len(folder.records()) == len(left)


@compiled
@settings(max_examples=150, deadline=None)
@given(
    data=st.binary(max_size=200)
    | st.lists(st.integers(0, 2**32), min_size=1, max_size=3).map(
        lambda seeds: b"".join(
            History(seed, codecs=False).folder.read(0, ".log")[: 2000 - seed % 50]
            for seed in seeds
            if History(seed, codecs=False).folder.segments[0].base_offset == 0
        )
    ),
    since=st.integers(0, 5000),
    interval=st.integers(0, 300),
    last_offset=st.sampled_from([-1, 5]),
)
def test_index_entries(data: bytes, since: int, interval: int, last_offset: int) -> None:
    before = IndexScan(0, [], since, (NOW_MS - 5000, 3), last_offset)
    roads = [index_batches(memoryview(data), interval, before, use_native=use_native) for use_native in (False, True)]
    assert roads[0] == roads[1]
