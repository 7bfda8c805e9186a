"""Random histories cleaned by Apache Kafka's own cleaner and by ours: batch for batch the same.

Kafka also has to keep every promise that these tests demand, so that they ask for no more than it does.
"""

import random
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from soak.cleaning.contents import BatchRow, data_records, difference, segments_of
from soak.cleaning.history import History
from soak.cleaning.kafka_cleaner import KafkaCleaner
from soak.cleaning.passes import Cleaning, choice, kafka_pass, our_pass
from soak.cleaning.promises import Pass, Promises
from soak.cleaning.walk import random_settings, random_step, stamp_files
from tests.kafka import CLEANER_REFERENCE, LAST_WITH_ZOOKEEPER

from barnabas.storage.filesystem import OsFileSystem
from barnabas.storage.transaction_index import AbortedTxn

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

VERSIONS = [CLEANER_REFERENCE, LAST_WITH_ZOOKEEPER]
MAP_SIZES = (8, 40, 2000)
# Kafka's cleaner throws where a cleaned segment has more index entries than its file may have.
INDEX_SIZES = (400, 4000)


def new_history(folder: Path, rng: random.Random, version: str) -> History:
    """An empty log. Kafka 4 makes v2 of the old formats when it cleans them; 3.9 leaves them as they are."""
    return History(
        OsFileSystem(), str(folder), random_settings(rng, 2 if version == CLEANER_REFERENCE else None, INDEX_SIZES)
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_kafka_keeps_every_promise(version: str, fast_folder: Path) -> None:
    passes = 0
    with KafkaCleaner(version) as kafka:
        cleaning = kafka_pass(kafka)
        for seed in range(25):
            rng = random.Random(seed)
            history = new_history(fast_folder / f"history-{seed}", rng, version)
            promises = Promises(history)
            for _ in range(rng.randint(10, 70)):
                if rng.random() < 0.08 and (done := cleaning(history, rng.choice(MAP_SIZES))):
                    promises.check_pass(done)
                    passes += 1
                random_step(history, rng)
            promises.check()
            history.log.close_handles()
    assert passes >= 20


class SideBySide:
    """Two cleaners at work on copies of one log."""

    def __init__(self, kafka: KafkaCleaner, version: str) -> None:
        self._theirs = kafka_pass(kafka)
        self._version = version
        self.passes = 0

    def clean(self, history: History, ours: Cleaning, slots: int) -> Pass | None:
        """Clean the history's log with ours and a copy of it with Kafka's, and compare; the history goes on with ours.

        Raises AssertionError if they differ.
        """
        history.log.flush()
        history.close()
        stamp_files(history)
        before = Path(history.folder)
        copied = before.parent / f"theirs-{before.name}"
        shutil.copytree(before, copied)
        history.reopen()
        other = History(history.fs, str(copied), history.settings, history.clock)
        other.written, other.first_dirty_offset = history.written, history.first_dirty_offset
        other.transactions, other.magic = history.transactions, history.magic
        told = self._theirs(other, slots)
        bound = choice(history).first_uncleanable_offset
        done = ours(history, slots)
        if told is not None:
            assert bound == told.first_uncleanable_offset, f"up to {bound} can be cleaned, says ours; theirs: {told}"
            assert done is not None, f"ours cleaned nothing; theirs: {told}"
            self.compare(history, other, done, told)
            self.passes += 1
        other.log.close_handles()
        shutil.rmtree(copied)
        return done

    def compare(self, history: History, other: History, done: Pass, told: Pass) -> None:
        assert done == told
        mine, others = segments_of(history.folder), segments_of(other.folder)
        ours, theirs = self._rows(mine, done), self._rows(others, done)
        if forgets_an_end(history, others, done):
            assert set(data_records(ours)) <= set(data_records(theirs))
            return
        assert ours == theirs, f"{done}: {difference(ours, theirs)}"
        assert list(mine) == list(others), f"segments {list(mine)}, Kafka's {list(others)}"
        assert aborted_of(history) == aborted_of(other)

    def _rows(self, segments: dict[int, list[BatchRow]], done: Pass) -> list[BatchRow]:
        """All batches; for 3.9 without an empty one at the end of what was cleaned, which only 4.x keeps."""
        rows = [row for segment in segments.values() for row in segment]
        if self._version == CLEANER_REFERENCE:
            return rows
        return [row for row in rows if row.records or row.last_offset != done.first_uncleanable_offset - 1]


def aborted_of(history: History) -> dict[int, list[AbortedTxn]]:
    """What the transaction indexes say, by base offset of their segments."""
    return {segment.base_offset: list(segment.indexes.transactions.entries) for segment in history.log.segments}


def forgets_an_end(history: History, segments: Iterable[int], done: Pass) -> bool:
    """Whether Kafka takes a committed transaction for an aborted one while it fills its map.

    It looks for aborted transactions from the segment on in which the dirty part begins, and for their ends from the
    dirty part on: of one that ended in between it thinks that it goes on, so that the producer's next transaction is
    not noted in the map. What that would have replaced stays until a later pass.
    """
    start = max(base for base in segments if base <= done.first_dirty_offset)
    over = {
        entry.producer_id
        for entry in history.transactions
        if entry.state == "aborted" and start <= entry.marker < done.first_dirty_offset
    }
    return any(entry.producer_id in over for entry in history.transactions if entry.marker >= done.first_dirty_offset)


def compare_histories(version: str, folder: Path, seeds: range) -> int:
    """Random histories with both cleaners in them; how many passes there were."""
    with KafkaCleaner(version) as kafka:
        side_by_side = SideBySide(kafka, version)
        for seed in seeds:
            rng = random.Random(seed)
            history = new_history(folder / f"history-{seed}", rng, version)
            promises = Promises(history)
            try:
                for _ in range(rng.randint(10, 80)):
                    if rng.random() < 0.1:
                        ours = our_pass(use_native=seed % 2 == 0, io_buffer_bytes=rng.choice((64, 1 << 16)))
                        done = side_by_side.clean(history, ours, rng.choice(MAP_SIZES))
                        if done is not None:
                            promises.check_pass(done)
                    random_step(history, rng)
                promises.check()
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, {history.settings}: {error}") from error
            history.log.close_handles()
            shutil.rmtree(history.folder)
    return side_by_side.passes


@pytest.mark.parametrize("version", VERSIONS)
def test_our_cleaner_leaves_the_same_batches(version: str, fast_folder: Path) -> None:
    assert compare_histories(version, fast_folder, range(60)) > 40


@pytest.mark.verify
@pytest.mark.parametrize("version", VERSIONS)
def test_our_cleaner_leaves_the_same_batches_in_many_histories(version: str, fast_folder: Path) -> None:
    assert compare_histories(version, fast_folder, range(1000, 1600)) > 500
