"""What recovery makes of offsets that are missing between two segments: a loss, or the work of compaction."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.storage.lanes import checkpoint, load
from tests.storage.logs import NOW_MS, append, base_offsets, batch, offsets_in, open_log

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.filesystem import OsFileSystem
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_manager import LogManager

TP = TopicPartition("t", 0)


def three_segments(path: Path) -> None:
    """Segments at 0, 4 and 8, of two batches each."""
    log = open_log(path)
    for _ in range(3):
        append(log, 2)
        append(log, 2)
        log.roll()
    log.close()


def lose_second_batch(path: Path, base_offset: int) -> None:
    """Cuts a segment after its first batch, as compaction does, or a crash before anything was synced."""
    name = path / f"{base_offset:020d}.log"
    name.write_bytes(name.read_bytes()[: len(batch(2))])


@pytest.mark.parametrize(
    ("recovery_point", "policy", "kept"),
    [
        (0, "delete", [0]),
        (2, "delete", [0]),
        (3, "delete", [0, 4, 8, 12]),
        (4, "delete", [0, 4, 8, 12]),
        (-1, "delete", [0, 4, 8, 12]),
        (0, "compact", [0, 4, 8, 12]),
        (0, "compact,delete", [0, 4, 8, 12]),
    ],
)
def test_a_gap_is_a_loss_only_where_nothing_was_flushed(
    tmp_path: Path, recovery_point: int, policy: str, kept: list[int]
) -> None:
    path = tmp_path / "t-0"
    three_segments(path)
    lose_second_batch(path, 0)
    log = open_log(path, clean=False, recovery_point=recovery_point, cleanup_policy=policy)
    assert base_offsets(log) == kept
    assert offsets_in(log) == ([0, 1] if kept == [0] else [0, 1, *range(4, 12)])


@pytest.mark.parametrize("recovery_point", range(-1, 13))
def test_a_flushed_segment_is_never_dropped(tmp_path: Path, recovery_point: int) -> None:
    path = tmp_path / "t-0"
    three_segments(path)
    for base_offset in (0, 4):
        lose_second_batch(path, base_offset)
    log = open_log(path, clean=False, recovery_point=recovery_point)
    flushed = [base for base in (0, 4, 8) if base < recovery_point]
    assert base_offsets(log)[: len(flushed)] == flushed
    assert set(offsets_in(log)) >= {0, 1, 4, 5, 8, 9, 10, 11} & set(range(recovery_point))


def manager(root: Path) -> LogManager:
    found = LogManager(
        [str(root)],
        fs=OsFileSystem(),
        config_for=lambda topic: LogConfig(),
        now_ms=lambda: NOW_MS,
        rng=random.Random(0),
    )
    found.open_dirs()
    load(found)
    return found


@pytest.mark.parametrize(
    ("recovery_points", "cleaner_points", "kept"),
    [
        (None, None, [0, 4, 8, 12]),
        ("0\n1\nother 0 0\n", None, [0, 4, 8, 12]),
        ("0\n1\nt 0 0\n", "0\n1\nt 0 4\n", [0, 4, 8, 12]),
        ("0\n1\nt 0 0\n", None, [0]),
        ("not a checkpoint", None, [0, 4, 8, 12]),
    ],
)
def test_a_folder_from_elsewhere_keeps_its_gaps(
    tmp_path: Path, recovery_points: str | None, cleaner_points: str | None, kept: list[int]
) -> None:
    three_segments(tmp_path / "t-0")
    lose_second_batch(tmp_path / "t-0", 0)
    for name, content in (("recovery-point", recovery_points), ("cleaner", cleaner_points)):
        if content is not None:
            (tmp_path / f"{name}-offset-checkpoint").write_text(content)
    logs = manager(tmp_path)
    assert base_offsets(logs.logs[TP]) == kept
    logs.close()


def test_a_new_log_is_known_to_be_our_own(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    logs.creation.get_or_create_log(TP, is_new=True)
    checkpoint(logs)
    logs.close()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 0\n"


def test_an_index_with_zeros_below_the_recovery_point_is_rebuilt(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    log = open_log(path, index_interval_bytes=50)
    for number in range(8):
        append(log, 2, timestamp=NOW_MS + 10 * number)
    log.roll()
    log.close()
    for suffix in ("index", "timeindex"):
        index = path / f"{0:020d}.{suffix}"
        good = index.read_bytes()
        assert len(good) > 24
        index.write_bytes(good[:-24] + bytes(24))
        open_log(path, clean=False, recovery_point=16, index_interval_bytes=50).close()
        assert index.read_bytes() == good
