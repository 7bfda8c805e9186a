"""Each file of a log damaged, truncated, replaced or deleted, while the broker is stopped and while it runs.

A damaged file costs its own segment or partition. What the log itself says is served after a rebuild or a restart.
"""

from __future__ import annotations

import errno
import logging
import random
import shutil
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.storage.crash_world import SMALL
from tests.storage.lanes import checkpoint, shut_down
from tests.storage.lanes import retain as retain_all
from tests.storage.logs import NOW_MS, Clock, batch, finished, marker, open_log, retain
from tests.storage.test_log_manager import ID_A, ID_B, A, B, started

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.record_batch import RecordBatch, iter_batches
from barnabas.storage.cleaning.log_to_clean import CleanerSettings
from barnabas.storage.cleaning.offline import OfflineCleaner
from barnabas.storage.errors import CorruptCheckpointError, LogDirFailedError
from barnabas.storage.file_records import FileRecords
from barnabas.storage.filesystem import OsFile, OsFileSystem
from barnabas.storage.log import Log
from barnabas.storage.log_dir import CHECKPOINTS, CLEAN_SHUTDOWN_FILE
from barnabas.storage.log_manager import LogManager
from barnabas.storage.log_validator import COORDINATOR_RULES
from barnabas.storage.transaction_index_checkpoint import FILE_NAME as TRANSACTION_INDEX_CHECKPOINT
from barnabas.storage.transaction_index_checkpoint import TransactionIndexCheckpoint

CONFIG = replace(SMALL, segment_bytes=4000, segment_index_bytes=4000, index_interval_bytes=200)
BATCHES = 90


def write_history(log: Log) -> None:
    """Several segments with rising timestamps, three leader epochs, aborted, committed and open transactions."""
    sequences: dict[int, int] = {}
    for number in range(BATCHES):
        epoch = number * 3 // BATCHES
        if number % 9 == 8:
            producer_id = 10 + number // 9 % 3
            log.append_as_leader(
                marker(producer_id, commit=number % 2 == 0), leader_epoch=epoch, rules=COORDINATOR_RULES
            )
            continue
        producer_id = 10 + number // 9 % 3
        sequence = sequences.get(producer_id, 0)
        sequences[producer_id] = sequence + 2
        fields: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        records = batch(2, timestamp=NOW_MS + 100 * number, size=60, is_transactional=True, **fields)
        log.append_as_leader(records, leader_epoch=epoch)
    fields = {"producer_id": 99, "producer_epoch": 0, "base_sequence": 0}
    log.append_as_leader(batch(1, is_transactional=True, **fields), leader_epoch=2)
    log.flush()
    log.update_high_watermark(log.log_end_offset)


@dataclass
class Seen:
    """All that clients can learn of a log."""

    records: list[tuple[int, int, bytes | None]]
    aborted: list[tuple[int, int, int]]
    by_time: list[tuple[int, int] | None]
    max_timestamp: tuple[int, int] | None
    last_stable_offset: int
    epochs: list[tuple[int, int]]
    producers: dict[int, tuple[int, int, int | None]]


def seen(log: Log) -> Seen:
    log.update_high_watermark(log.log_end_offset)
    records: dict[int, tuple[int, int, bytes | None]] = {}
    aborted: set[tuple[int, int, int]] = set()
    for offset in range(log.log_start_offset, log.log_end_offset):
        found = log.read(offset, 300, min_one_message=True, read_committed=True)
        first = next(iter_batches(bytes(found.data)))
        assert first.last_offset >= offset
        assert found.aborted_transactions is not None
        aborted |= {(one.producer_id, one.first_offset, one.last_offset) for one in found.aborted_transactions}
        records |= {one.offset: (one.offset, one.timestamp, one.value) for one in first.records()}
    times = [NOW_MS + 50 * number for number in range(-1, 2 * BATCHES + 2)]
    producers = log.producer_state.producers
    return Seen(
        sorted(records.values()),
        sorted(aborted),
        [log.fetch_offset_by_timestamp(timestamp) for timestamp in times],
        finished(log.find_max_timestamp()),
        log.last_stable_offset,
        list(log.leader_epochs.entries),
        {one: (each.last_offset, each.last_sequence, each.current_txn_first_offset) for one, each in producers.items()},
    )


def start(root: Path, fs: OsFileSystem | None = None) -> LogManager:
    return started(fs or OsFileSystem(), str(root), config=CONFIG)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Seen]:
    """A log directory after a clean stop, and what clients saw of log A."""
    root = tmp_path_factory.mktemp("original")
    manager = start(root)
    for topic_partition, topic_id in ((A, ID_A), (B, ID_B)):
        write_history(manager.creation.get_or_create_log(topic_partition, topic_id=topic_id, is_new=True))
    expected = seen(manager.logs[A])
    assert len(manager.logs[A].segments) >= 4
    assert len(expected.aborted) == 5
    checkpoint(manager)
    shut_down(manager)
    return root, expected


@pytest.fixture
def root(original: tuple[Path, Seen], tmp_path: Path) -> Path:
    shutil.copytree(original[0], tmp_path / "data")
    return tmp_path / "data"


def segment_file(root: Path, suffix: str, number: int = 1) -> Path:
    """A file of one of log A's segments, by default of the second."""
    bases = sorted(path.stem for path in (root / "a-0").glob("*.log"))
    return root / "a-0" / f"{bases[number]}{suffix}"


def flip(path: Path, position: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def become_directory(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "precious").write_bytes(b"x")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "deleted": lambda path: path.unlink(missing_ok=True),
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "noise": lambda path: path.write_bytes(bytes(range(7, 256)) * 3),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "ones": lambda path: path.write_bytes(b"\xff" * path.stat().st_size),
    "a directory": become_directory,
}


def test_a_negative_position_in_an_index_is_rebuilt_and_served(root: Path, original: tuple[Path, Seen]) -> None:
    path = segment_file(root, ".index")
    whole = path.read_bytes()
    flip(path, len(whole) // 16 * 8 + 4, 7)
    manager = start(root)
    assert seen(manager.logs[A]) == original[1]
    assert manager.held.online_dirs
    shut_down(manager)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
@pytest.mark.parametrize("bit", [0, 3, 7, *(pytest.param(bit, marks=pytest.mark.nightly) for bit in (1, 2, 4, 5, 6))])
@pytest.mark.parametrize("lane", range(4))
@pytest.mark.verify
def test_no_bit_of_an_index_changes_what_is_read(
    root: Path, original: tuple[Path, Seen], suffix: str, bit: int, lane: int
) -> None:
    path = segment_file(root, suffix)
    for position in range(lane, path.stat().st_size, 4):
        flip(path, position, bit)
        manager = start(root)
        assert seen(manager.logs[A]) == original[1], (position, bit)
        manager.close()
        shutil.rmtree(root)
        shutil.copytree(original[0], root)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(("suffix", "number"), [(".index", 1), (".timeindex", -1), (".txnindex", 1)])
def test_a_damaged_index_is_rebuilt_after_a_stop(
    root: Path, original: tuple[Path, Seen], suffix: str, damage: str, number: int
) -> None:
    path = segment_file(root, suffix, number)
    assert path.exists()
    DAMAGES[damage](path)
    manager = start(root)
    assert seen(manager.logs[A]) == original[1]
    assert seen(manager.logs[B]) == original[1]
    shut_down(manager)


def test_all_indexes_are_rebuilt_together_after_a_clean_stop(root: Path, original: tuple[Path, Seen]) -> None:
    for path in (root / "a-0").glob("*index"):
        path.unlink()
    manager = start(root)
    assert seen(manager.logs[A]) == original[1]
    shut_down(manager)
    for path in (original[0] / "a-0").glob("*.txnindex"):
        assert (root / "a-0" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("damage", DAMAGES)
def test_producer_state_without_its_snapshots_comes_from_the_log(
    root: Path, original: tuple[Path, Seen], damage: str
) -> None:
    for path in (root / "a-0").glob("*.snapshot"):
        DAMAGES[damage](path)
    manager = start(root)
    assert seen(manager.logs[A]) == original[1]
    shut_down(manager)


def test_a_snapshot_of_another_log_is_not_believed(root: Path, original: tuple[Path, Seen]) -> None:
    newest = max((root / "a-0").glob("*.snapshot"))
    low = newest.with_name("00000000000000000003.snapshot")
    shutil.copyfile(newest, low)
    for path in (root / "a-0").glob("*.snapshot"):
        if path != low:
            path.unlink()
    for log_file in (root / "a-0").glob("*index"):
        log_file.unlink()
    manager = start(root)
    assert seen(manager.logs[A]) == original[1]
    shut_down(manager)


@pytest.mark.parametrize("damage", DAMAGES)
def test_leader_epochs_come_from_the_log_where_their_file_is_damaged(
    root: Path, original: tuple[Path, Seen], damage: str
) -> None:
    DAMAGES[damage](root / "a-0" / "leader-epoch-checkpoint")
    manager = start(root)
    assert seen(manager.logs[A]) == original[1]
    shut_down(manager)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", [*CHECKPOINTS, CLEAN_SHUTDOWN_FILE, "a-0/partition.metadata"])
def test_a_damaged_checkpoint_costs_no_record(root: Path, original: tuple[Path, Seen], name: str, damage: str) -> None:
    if not (root / name).exists():
        (root / name).write_bytes(b"0\n0\n")
    DAMAGES[damage](root / name)
    manager = start(root)
    assert seen(manager.logs[A]) == original[1]
    shut_down(manager)


@pytest.mark.parametrize(
    "line",
    [
        "a 0 9223372036854775808",
        "a 0 99999999999999999999999",
        "a 0 -1",
        "a 0 1_0",
        "a 0 +1",
        "a 2147483648 1",
        "a 0 \N{ARABIC-INDIC DIGIT THREE}",
    ],
)
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_with_a_number_out_of_range_counts_as_damaged(
    root: Path, original: tuple[Path, Seen], name: str, line: str
) -> None:
    (root / name).write_text(f"0\n2\nb.with-dash 12 1\n{line}\n")
    manager = start(root)
    assert manager.held.dirs[0].offsets[name] == {}
    assert seen(manager.logs[A]) == original[1]
    shut_down(manager)


@pytest.mark.parametrize("line", ["0 9223372036854775808", "2147483648 0", "-1 0", "0 -1", "0 5\n0 7", "1 5\n2 5"])
def test_an_epoch_out_of_range_counts_as_damage(root: Path, original: tuple[Path, Seen], line: str) -> None:
    (root / "a-0" / "leader-epoch-checkpoint").write_text(f"0\n{len(line.splitlines())}\n{line}\n")
    manager = start(root)
    assert seen(manager.logs[A]) == original[1]
    shut_down(manager)


# Transaction indexes, of which only checksums show that they lost entries


def txn_indexes(root: Path) -> list[Path]:
    """The transaction indexes of log A."""
    return sorted((root / "a-0").glob("*.txnindex"))


def believed_in_silence(root: Path, expected: Seen, caplog: pytest.LogCaptureFixture) -> LogManager:
    """The manager of a start that rebuilds nothing and logs no warning, and whose log A is as expected."""
    caplog.clear()
    manager = start(root)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert seen(manager.logs[A]) == expected
    return manager


def abort_again(log: Log) -> None:
    """Append another aborted transaction."""
    fields: dict[str, Any] = {"producer_id": 50, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    log.append_as_leader(batch(1, **fields), leader_epoch=2)
    log.append_as_leader(marker(50, commit=False), leader_epoch=2, rules=COORDINATOR_RULES)
    log.flush()


def committed_offsets(log: Log) -> list[int]:
    """The offsets of the records that a read_committed consumer returns."""
    offset, offsets = log.log_start_offset, list[int]()
    while offset < log.last_stable_offset:
        found = log.read(offset, 1 << 20, max_offset=log.last_stable_offset, read_committed=True)
        assert found.aborted_transactions is not None
        aborted = {(one.producer_id, number) for one in found.aborted_transactions for number in range(*one[1:3])}
        for each in iter_batches(bytes(found.data)):
            assert isinstance(each, RecordBatch)
            if not each.header.is_control and (each.header.producer_id, each.base_offset) not in aborted:
                offsets += [record.offset for record in each.records()]
            offset = each.last_offset + 1
    return offsets


def test_checksums_exist_between_a_clean_stop_and_the_next_start(
    root: Path, original: tuple[Path, Seen], caplog: pytest.LogCaptureFixture
) -> None:
    content = (root / TRANSACTION_INDEX_CHECKPOINT).read_text()
    assert [line.split()[:2] for line in content.splitlines()[3:]].count(["a", "0"]) == len(txn_indexes(root)) >= 2
    manager = believed_in_silence(root, original[1], caplog)
    assert not (root / TRANSACTION_INDEX_CHECKPOINT).exists()
    shut_down(manager)
    later = (root / TRANSACTION_INDEX_CHECKPOINT).read_text()
    assert later.splitlines()[3:] == content.splitlines()[3:]


def test_a_directory_without_aborted_transactions_has_no_checksums(tmp_path: Path) -> None:
    manager = start(tmp_path / "data")
    manager.creation.get_or_create_log(A, topic_id=ID_A, is_new=True).append_as_leader(batch(1), leader_epoch=0)
    shut_down(manager)
    assert (tmp_path / "data" / CLEAN_SHUTDOWN_FILE).exists()
    assert not (tmp_path / "data" / TRANSACTION_INDEX_CHECKPOINT).exists()


def test_all_transaction_indexes_deleted_alone_are_rebuilt(
    root: Path, original: tuple[Path, Seen], caplog: pytest.LogCaptureFixture
) -> None:
    deleted = txn_indexes(root)
    for path in deleted:
        path.unlink()
    manager = start(root)
    assert seen(manager.logs[A]) == original[1]
    warnings = [record.getMessage() for record in caplog.records if "last clean stop" in record.getMessage()]
    assert [f"{path}: its 0 entries" in line for path, line in zip(deleted, warnings, strict=True)] == [True] * len(
        deleted
    )
    shut_down(manager)
    assert [path.read_bytes() for path in deleted] == [path.read_bytes() for path in txn_indexes(original[0])]
    shut_down(believed_in_silence(root, original[1], caplog))


# The lowest bits of the producer id, of the first offset, and of the last stable offset: all remain plausible.
@pytest.mark.parametrize("position", [9, 17, 33])
def test_a_plausible_entry_of_a_transaction_index_is_not_believed(
    root: Path, original: tuple[Path, Seen], position: int
) -> None:
    path = txn_indexes(root)[-1]
    whole = path.read_bytes()
    flip(path, position, 0)
    manager = start(root)
    assert seen(manager.logs[A]) == original[1]
    shut_down(manager)
    assert path.read_bytes() == whole


def test_a_transaction_index_of_a_partition_that_cannot_be_rebuilt_is_not_served(
    root: Path, original: tuple[Path, Seen]
) -> None:
    """A segment with damage inside, of which nothing shows the aborted transactions any more."""
    path = txn_indexes(root)[0]
    path.unlink()
    data = bytearray(path.with_suffix(".log").read_bytes())
    data[300:1000] = bytes(700)
    path.with_suffix(".log").write_bytes(data)
    manager = start(root)
    assert set(manager.logs) == {B}
    assert seen(manager.logs[B]) == original[1]
    shut_down(manager)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_checksums_are_ignored_with_a_warning(
    root: Path, original: tuple[Path, Seen], damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    DAMAGES[damage](root / TRANSACTION_INDEX_CHECKPOINT)
    manager = start(root)
    assert seen(manager.logs[A]) == original[1]
    named = [record for record in caplog.records if TRANSACTION_INDEX_CHECKPOINT in record.getMessage()]
    assert len(named) == (damage not in ("deleted", "empty"))
    assert not [record for record in caplog.records if "rebuilt" in record.getMessage()]
    shut_down(manager)
    assert (root / TRANSACTION_INDEX_CHECKPOINT).is_file()


def test_no_bit_of_the_checksums_makes_an_index_wrong(
    root: Path, original: tuple[Path, Seen], caplog: pytest.LogCaptureFixture
) -> None:
    path = root / TRANSACTION_INDEX_CHECKPOINT
    whole = path.read_bytes()
    checkpoint_file = TransactionIndexCheckpoint(str(root), OsFileSystem())
    modified_ms = OsFileSystem().modified_ms(f"{root}/{CLEAN_SHUTDOWN_FILE}")
    expected = checkpoint_file.read(modified_ms)
    assert expected[A]
    for position in range(len(whole)):
        for bit in range(8):
            flip(path, position, bit)
            try:
                found = checkpoint_file.read(modified_ms)
            except CorruptCheckpointError:
                found = {}
            assert found in (expected, {}), (position, bit)
            path.write_bytes(whole)
    flip(path, len(whole) // 2, 0)
    manager = start(root)
    assert seen(manager.logs[A]) == original[1]
    assert "is damaged and is ignored" in caplog.text
    shut_down(manager)


def test_checksums_of_an_earlier_stop_are_void(
    root: Path, original: tuple[Path, Seen], caplog: pytest.LogCaptureFixture
) -> None:
    """Another broker, which leaves the file alone, has opened and closed the directory since."""
    stale = (root / TRANSACTION_INDEX_CHECKPOINT).read_bytes()
    fs = OsFileSystem()
    manager = start(root)
    log = manager.logs[A]
    log.truncate_to(log.segments[1].base_offset + 5)
    abort_again(log)
    after = seen(log)
    assert after.aborted != original[1].aborted
    shut_down(manager)
    (root / TRANSACTION_INDEX_CHECKPOINT).write_bytes(stale)
    shut_down(believed_in_silence(root, after, caplog))
    marker_file = f"{root}/{CLEAN_SHUTDOWN_FILE}"
    fs.set_modified_ms(marker_file, fs.modified_ms(marker_file) + 1)
    for path in txn_indexes(root):
        flip(path, 9, 0)
    manager = start(root)
    assert not [record for record in caplog.records if "last clean stop" in record.getMessage()]
    shut_down(manager)


def test_a_segment_that_grew_has_no_checksum(
    root: Path, original: tuple[Path, Seen], caplog: pytest.LogCaptureFixture
) -> None:
    """Even if the clean-shutdown marker had the time of the one before."""
    fs = OsFileSystem()
    stale, modified_ms = (
        (root / TRANSACTION_INDEX_CHECKPOINT).read_bytes(),
        fs.modified_ms(f"{root}/{CLEAN_SHUTDOWN_FILE}"),
    )
    manager = start(root)
    abort_again(manager.logs[A])
    after = seen(manager.logs[A])
    assert len(after.aborted) == len(original[1].aborted) + 1
    shut_down(manager)
    (root / TRANSACTION_INDEX_CHECKPOINT).write_bytes(stale)
    fs.set_modified_ms(f"{root}/{CLEAN_SHUTDOWN_FILE}", modified_ms)
    shut_down(believed_in_silence(root, after, caplog))


def test_checksums_after_a_crash_are_void(
    root: Path, original: tuple[Path, Seen], caplog: pytest.LogCaptureFixture
) -> None:
    stale = (root / TRANSACTION_INDEX_CHECKPOINT).read_bytes()
    manager = start(root)
    abort_again(manager.logs[A])
    after = seen(manager.logs[A])
    manager.close()
    assert not (root / CLEAN_SHUTDOWN_FILE).exists()
    assert not (root / TRANSACTION_INDEX_CHECKPOINT).exists()
    (root / TRANSACTION_INDEX_CHECKPOINT).write_bytes(stale)
    for path in txn_indexes(root)[-1:]:
        path.unlink(missing_ok=True)
    again = start(root)
    assert "last clean stop" not in caplog.text
    assert seen(again.logs[A]) == after
    shut_down(again)


def test_indexes_after_retention_have_their_checksums(
    root: Path, original: tuple[Path, Seen], caplog: pytest.LogCaptureFixture
) -> None:
    manager = start(root)
    log = manager.logs[A]
    log.maybe_increment_log_start_offset(log.segments[2].base_offset + 1)
    retain_all(manager)
    after = seen(log)
    assert after.aborted and after.aborted != original[1].aborted
    shut_down(manager)
    shut_down(believed_in_silence(root, after, caplog))
    for path in txn_indexes(root):
        path.unlink()
    manager = start(root)
    assert seen(manager.logs[A]) == after
    shut_down(manager)


def test_indexes_after_compaction_have_their_checksums(
    root: Path, original: tuple[Path, Seen], caplog: pytest.LogCaptureFixture
) -> None:
    """By the offline cleaner, which the directory's checksums follow."""
    before = {path.name: path.stat().st_size for path in (root / "a-0").glob("*.log")}
    OfflineCleaner(
        OsFileSystem(),
        now_ms=lambda: NOW_MS + 10**9,
        rng=random.Random(0),
        config=replace(CONFIG, cleanup_policy="compact"),
        settings=CleanerSettings(),
    ).compact(str(root / "a-0"), lambda progress: None)
    assert {path.name: path.stat().st_size for path in (root / "a-0").glob("*.log")} != before
    manager = start(root)
    after, committed = seen(manager.logs[A]), committed_offsets(manager.logs[A])
    assert 0 < len(after.records) < len(original[1].records)
    shut_down(manager)
    shut_down(believed_in_silence(root, after, caplog))
    damaged = txn_indexes(root) + sorted((root / f"{B}").glob("*.txnindex"))
    assert len(damaged) > len(txn_indexes(root))
    for path in damaged:
        path.unlink()
    manager = start(root)
    # A rebuild does not find transactions of which the cleaner has removed every record.
    assert set(seen(manager.logs[A]).aborted) < set(after.aborted)
    assert committed_offsets(manager.logs[A]) == committed
    assert seen(manager.logs[B]) == original[1]
    shut_down(manager)


def test_an_offline_compaction_rebuilds_transaction_indexes_first(root: Path, original: tuple[Path, Seen]) -> None:
    """Else it would keep aborted records as committed ones."""

    def compacted(folder: Path) -> Seen:
        OfflineCleaner(
            OsFileSystem(),
            now_ms=lambda: NOW_MS + 10**9,
            rng=random.Random(0),
            config=replace(CONFIG, cleanup_policy="compact"),
            settings=CleanerSettings(),
        ).compact(str(folder / "a-0"), lambda progress: None)
        manager = start(folder)
        try:
            return seen(manager.logs[A])
        finally:
            shut_down(manager)

    shutil.copytree(root, other := root.with_name("damaged"))
    for path in txn_indexes(other):
        path.unlink()
    assert compacted(other) == compacted(root)


# While the broker runs


def use(log: Log, rounds: int = 40) -> int:
    """Read everything, and append, roll and flush; how many records were acknowledged."""
    acknowledged = 0
    for offset in range(log.log_start_offset, log.log_end_offset, 3):
        with suppress(KafkaError):
            log.read(offset, 300, min_one_message=True, read_committed=True)
    for time in range(0, 9000, 500):
        with suppress(KafkaError):
            log.fetch_offset_by_timestamp(NOW_MS + time)
    for _ in range(rounds):
        with suppress(KafkaError):
            log.append_as_leader(batch(2, size=60, timestamp=NOW_MS + 10_000), leader_epoch=2)
            log.flush()
            acknowledged += 2
            log.update_high_watermark(log.log_end_offset)
    return acknowledged


FILES = [
    *((number, suffix) for suffix in (".index", ".timeindex", ".txnindex", ".snapshot") for number in (0, 1, -1)),
    (0, "leader-epoch-checkpoint"),
    (0, "partition.metadata"),
]


@pytest.mark.parametrize("opened", [False, True], ids=["unread", "read"])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", FILES, ids=str)
@pytest.mark.verify
def test_each_file_damaged_while_the_broker_runs_costs_no_other_log_and_no_record(
    root: Path, original: tuple[Path, Seen], file: tuple[int, str], damage: str, opened: bool
) -> None:
    check_damage_at_run_time(root, original[1], file, damage, opened=opened)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ((0, ".index"), "half"),
        ((0, ".timeindex"), "a directory"),
        ((-1, ".index"), "empty"),
        ((-1, ".snapshot"), "a directory"),
        ((0, "leader-epoch-checkpoint"), "a directory"),
    ],
    ids=str,
)
def test_a_file_damaged_while_the_broker_runs_costs_no_other_log_and_no_record(
    root: Path, original: tuple[Path, Seen], file: tuple[int, str], damage: str
) -> None:
    check_damage_at_run_time(root, original[1], file, damage, opened=True)


def check_damage_at_run_time(root: Path, expected: Seen, file: tuple[int, str], damage: str, *, opened: bool) -> None:
    """Damage a file of log A, use both logs, stop, and find all records again."""
    number, suffix = file
    path = segment_file(root, suffix, number) if suffix.startswith(".") else root / "a-0" / suffix
    existed = path.exists()
    manager = start(root)
    if opened:
        seen(manager.logs[A])
    if not existed and damage in ("half", "zeros", "ones"):
        pytest.skip("there is no such file")
    DAMAGES[damage](path)
    acknowledged = 0
    try:
        acknowledged = use(manager.logs[A])
    except LogDirFailedError as error:
        manager.held.fail(error)
    use(manager.logs[B])
    assert manager.held.online_dirs
    assert B in manager.logs
    shut_down(manager)
    again = start(root)
    after = seen(again.logs[A])
    assert after.records[: len(expected.records)] == expected.records
    assert len(after.records) >= len(expected.records) + acknowledged
    assert after.aborted == expected.aborted
    assert seen(again.logs[B]).records[: len(expected.records)] == expected.records
    shut_down(again)


@pytest.mark.parametrize("damage", ["deleted", "empty", "half", "noise", "a directory"])
def test_a_segment_damaged_while_the_broker_runs_costs_itself_alone(
    root: Path, original: tuple[Path, Seen], damage: str
) -> None:
    manager = start(root)
    log = manager.logs[A]
    damaged = log.segments[1]
    bounds = damaged.base_offset, log.segments[2].base_offset
    DAMAGES[damage](segment_file(root, ".log"))
    failed = set()
    for offset in range(log.log_end_offset):
        try:
            log.read(offset, 300, min_one_message=True)
        except KafkaError as error:
            assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR)
            failed.add(offset)
    assert failed
    assert failed <= set(range(*bounds))
    assert use(log) == 80
    assert manager.held.online_dirs
    assert seen(manager.logs[B]) == original[1]
    shut_down(manager)


def test_a_partition_folder_removed_while_the_broker_runs_is_offline_alone(
    root: Path, original: tuple[Path, Seen], caplog: pytest.LogCaptureFixture
) -> None:
    manager = start(root)
    log = manager.logs[A]
    shutil.rmtree(root / "a-0")
    with pytest.raises(LogDirFailedError) as caught:
        for _ in range(100):
            with suppress(KafkaError):
                log.append_as_leader(batch(2, size=60), leader_epoch=7)
                log.flush()
        log.flush()
    manager.held.fail(caught.value)
    assert set(manager.logs) == {B}
    assert set(manager.held.offline) == {A}
    assert any("a-0 is offline until a restart" in record.getMessage() for record in caplog.records)
    assert seen(manager.logs[B]) == original[1]
    with pytest.raises(KafkaError, match="offline"):
        manager.held.get_log(A)
    shut_down(manager)


def test_a_log_directory_that_is_gone_is_a_failed_disk(root: Path) -> None:
    manager = start(root)
    log = manager.logs[A]
    shutil.rmtree(root)
    failure = None
    for _ in range(200):
        try:
            log.append_as_leader(batch(2, size=60), leader_epoch=7)
            log.flush()
        except KafkaError:
            continue
        except LogDirFailedError as error:
            failure = error
            break
    assert failure is not None
    with pytest.raises(Exception, match="every log directory has failed"):
        manager.held.fail(failure)
    manager.close()


class RefusingFileSystem(OsFileSystem):
    """Answers an error number for each file whose path ends in a suffix, as for another user's, or on a bad disk."""

    def __init__(self) -> None:
        super().__init__()
        self.suffix, self.errno = "\0", 0

    def refuse(self, suffix: str, number: int) -> None:
        self.suffix, self.errno = suffix, number

    def _check(self, path: str) -> None:
        if path.endswith(self.suffix):
            raise OSError(self.errno, "refused", path)

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, readonly: bool = False) -> OsFile:
        if self.exists(path):  # a file that is made anew is this user's
            self._check(path)
        return super().open(path, create=create, exclusive=exclusive, readonly=readonly)

    def read_bytes(self, path: str) -> bytes:
        self._check(path)
        return super().read_bytes(path)

    def unlink(self, path: str) -> None:
        super().unlink(path)
        if path.endswith(self.suffix):
            self.suffix = "\0"


@pytest.mark.parametrize(
    "name",
    [
        *("1.index", "1.timeindex", "1.txnindex", "-1.index", "leader-epoch-checkpoint", "partition.metadata"),
        *(*CHECKPOINTS, CLEAN_SHUTDOWN_FILE, TRANSACTION_INDEX_CHECKPOINT),
    ],
)
def test_an_unreadable_file_that_follows_from_the_log_is_written_anew(
    root: Path, original: tuple[Path, Seen], name: str
) -> None:
    if name.endswith("index"):
        number, _, suffix = name.partition(".")
        name = segment_file(root, f".{suffix}", int(number)).name
    fs = RefusingFileSystem()
    fs.refuse(f"{A}/{name}" if name.endswith(("index", "metadata", "epoch-checkpoint")) else f"/{name}", errno.EACCES)
    manager = start(root, fs)
    assert seen(manager.logs[A]) == original[1]
    shut_down(manager)


def test_an_unreadable_segment_costs_itself_and_a_bad_disk_the_directory(
    root: Path, original: tuple[Path, Seen]
) -> None:
    fs = RefusingFileSystem()
    manager = start(root, fs)
    log = manager.logs[A]
    path = segment_file(root, ".log")
    fs.refuse(path.name, errno.EACCES)
    with pytest.raises(KafkaError) as refused:
        log.read(log.segments[1].base_offset, 300, min_one_message=True)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    for number in (errno.EIO, errno.EROFS):
        fs.refuse(path.name, number)
        with pytest.raises(LogDirFailedError):
            log.read(log.segments[1].base_offset, 300, min_one_message=True)
    fs.refuse("\0", 0)
    assert seen(log) == original[1]
    shut_down(manager)


def test_a_log_that_was_not_served_is_recovered_when_it_is_again(root: Path, original: tuple[Path, Seen]) -> None:
    last = segment_file(root, ".log", -1)
    (root / CLEAN_SHUTDOWN_FILE).unlink()
    with last.open("ab") as file:
        file.write(b"torn")
    become_directory(blocker := root / "a-0" / "00000000000000999999.log")
    manager = start(root)
    assert set(manager.logs) == {B}
    shut_down(manager)
    shutil.rmtree(blocker)
    again = start(root)
    assert seen(again.logs[A]) == original[1]
    shut_down(again)


STEPS_FROM = 1000


@pytest.fixture
def long_log(tmp_path: Path) -> Log:
    """A closed segment of more batches than one step of a rebuild reads, and an active one."""
    (tmp_path / "a-0").mkdir()
    log = open_log(tmp_path / "a-0", segment_bytes=10**6, index_interval_bytes=200)
    for number in range(STEPS_FROM):
        log.append_as_leader(batch(1, timestamp=NOW_MS + number), leader_epoch=0)
    log.roll()
    log.append_as_leader(batch(1), leader_epoch=0)
    log.flush()
    log.update_high_watermark(log.log_end_offset)
    log.give_files_back()
    return log


def damage_index(log: Log) -> None:
    path = Path(log.path) / f"{0:020d}.index"
    data = bytearray(path.read_bytes())
    for position in range(0, len(data), 8):
        data[position + 4] ^= 0x80
    path.write_bytes(data)


def test_an_index_is_rebuilt_in_steps_while_its_readers_get_a_retriable_error(long_log: Log) -> None:
    under_way: list[Generator[None, None, None]] = []
    long_log.rebuild_indexes_in_steps(under_way.append)
    damage_index(long_log)
    reads: list[int] = []
    read = FileRecords.pread

    def counting_read(self: FileRecords, length: int, position: int) -> bytes:
        reads.append(length)
        return read(self, length, position)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileRecords, "pread", counting_read)
        for _ in range(3):
            with pytest.raises(KafkaError) as caught:
                long_log.read(700, 300)
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert sum(reads) < 1000, "no request reads the segment"
    assert len(under_way) == 1, "readers wait for one rebuild"
    assert long_log.read(STEPS_FROM, 300).data, "other segments are served"
    assert long_log.append_as_leader(batch(1), leader_epoch=0).first_offset == STEPS_FROM + 1
    steps = sum(1 for _ in under_way[0])
    assert steps == STEPS_FROM // 200, "no step reads more headers than its share"
    assert next(iter_batches(bytes(long_log.read(700, 300).data))).base_offset == 700
    assert long_log.fetch_offset_by_timestamp(NOW_MS + 500) == (NOW_MS + 500, 500)
    assert not [path for path in Path(long_log.path).iterdir() if path.name.endswith(".tmp")]
    long_log.close()
    again = open_log(long_log.path, segment_bytes=10**6, index_interval_bytes=200)
    assert next(iter_batches(bytes(again.read(700, 300).data))).base_offset == 700


def test_a_rebuild_that_ends_at_once_costs_its_reader_no_error(long_log: Log) -> None:
    long_log.rebuild_indexes_in_steps(lambda steps: finished(steps))
    damage_index(long_log)
    assert next(iter_batches(bytes(long_log.read(700, 300).data))).base_offset == 700


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_a_truncation_ends_a_rebuild(long_log: Log, steps: int) -> None:
    under_way: list[Generator[None, None, None]] = []
    long_log.rebuild_indexes_in_steps(under_way.append)
    damage_index(long_log)
    with pytest.raises(KafkaError):
        long_log.read(700, 300)
    for _ in range(steps):
        next(under_way[0])
    long_log.truncate_to(800)
    for number in range(800, STEPS_FROM):
        long_log.append_as_leader(batch(1, timestamp=NOW_MS + number), leader_epoch=1)
    finished(under_way[0])
    for offset in (0, 700, 799, 800, 950):
        assert next(iter_batches(bytes(long_log.read(offset, 300).data))).base_offset == offset
    assert not [path for path in Path(long_log.path).iterdir() if path.name.endswith(".tmp")]


def test_a_rebuild_ends_at_damaged_data_and_is_not_tried_again(long_log: Log) -> None:
    under_way: list[Generator[None, None, None]] = []
    long_log.rebuild_indexes_in_steps(under_way.append)
    damage_index(long_log)
    path = Path(long_log.path) / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    at = len(data) * 9 // 10
    data[at : at + 400] = bytes(400)
    path.write_bytes(data)
    with pytest.raises(KafkaError):
        long_log.read(700, 300)
    finished(under_way[0])
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            long_log.read(700, 300)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert len(under_way) == 1


def test_retention_keeps_a_segment_whose_index_is_being_rebuilt(long_log: Log) -> None:
    under_way: list[Generator[None, None, None]] = []
    clock = Clock(NOW_MS + 10**6)
    log = open_log(long_log.path, clock=clock, segment_bytes=10**6, index_interval_bytes=200, retention_ms=10**5)
    log.update_high_watermark(log.log_end_offset)
    log.rebuild_indexes_in_steps(under_way.append)
    damage_index(log)
    with pytest.raises(KafkaError):
        log.read(700, 300)
    assert retain(log) == []
    finished(under_way[0])
    assert len(retain(log)) > 2, "its records are old"


@pytest.mark.parametrize("recovery_point", [0, 500, STEPS_FROM])
@pytest.mark.parametrize("index", ["kept", "deleted", "damaged"])
def test_an_old_batch_behind_the_newest_is_cut_however_damaged_the_index_is(
    tmp_path: Path, recovery_point: int, index: str
) -> None:
    log = open_log(tmp_path / "a-0", index_interval_bytes=200)
    for number in range(STEPS_FROM):
        log.append_as_leader(batch(1, timestamp=NOW_MS + number), leader_epoch=0)
    log.flush()
    log.close()
    path = tmp_path / "a-0" / f"{0:020d}.log"
    data = path.read_bytes()
    path.write_bytes(data + data[: 20 * len(batch(1))])
    if index == "deleted":
        path.with_suffix(".index").unlink()
    elif index == "damaged":
        damage_index(log)
    again = open_log(tmp_path / "a-0", index_interval_bytes=200, clean=False, recovery_point=recovery_point)
    assert again.log_end_offset == STEPS_FROM
    assert path.stat().st_size == len(data)
    assert next(iter_batches(bytes(again.read(700, 300).data))).base_offset == 700
    assert again.append_as_leader(batch(1), leader_epoch=0).first_offset == STEPS_FROM
