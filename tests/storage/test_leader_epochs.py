"""Leader epochs: assignment, the questions of followers, truncation, and the file."""

from __future__ import annotations

import pytest

from barnabas.simulation.disk import SimDisk
from barnabas.storage.leader_epochs import LeaderEpochCache


@pytest.fixture
def disk() -> SimDisk:
    found = SimDisk()
    found.make_dirs("/d")
    return found


def cache(disk: SimDisk, *entries: tuple[int, int]) -> LeaderEpochCache:
    found = LeaderEpochCache("/d/leader-epoch-checkpoint", disk)
    for entry in entries:
        found.assign(*entry)
    return found


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(-1, (-1, -1)), (1, (1, 10)), (2, (2, 20)), (3, (2, 20)), (4, (4, 30)), (7, (7, 99)), (8, (-1, -1))],
)
def test_end_offset_for_epoch(disk: SimDisk, asked: int, answer: tuple[int, int]) -> None:
    epochs = cache(disk, (2, 10), (4, 20), (7, 30))
    assert epochs.end_offset_for(asked, 99) == answer


def test_nothing_is_known_of_an_empty_log(disk: SimDisk) -> None:
    assert cache(disk).end_offset_for(0, 99) == (-1, -1)
    assert cache(disk).epoch_for_offset(5) == -1


def test_assigning_removes_what_contradicts(disk: SimDisk) -> None:
    epochs = cache(disk, (2, 10), (4, 20), (7, 30))
    assert not epochs.assign(7, 40)
    assert epochs.assign(5, 25)
    assert epochs.entries == [(2, 10), (4, 20), (5, 25)]
    assert epochs.assign(6, 15)
    assert epochs.entries == [(2, 10), (6, 15)]
    assert epochs.latest_epoch == 6


@pytest.mark.parametrize(
    ("end", "left"), [(31, [(2, 10), (4, 20), (7, 30)]), (30, [(2, 10), (4, 20)]), (11, [(2, 10)]), (10, [])]
)
def test_truncation_from_the_end(disk: SimDisk, end: int, left: list[tuple[int, int]]) -> None:
    epochs = cache(disk, (2, 10), (4, 20), (7, 30))
    epochs.truncate_from_end(end)
    assert epochs.entries == left
    assert epochs.latest_epoch == (left[-1][0] if left else -1)


@pytest.mark.parametrize(
    ("start", "left"),
    [(5, [(2, 10), (4, 20), (7, 30)]), (15, [(2, 15), (4, 20), (7, 30)]), (20, [(4, 20), (7, 30)]), (50, [(7, 50)])],
)
def test_truncation_from_the_start(disk: SimDisk, start: int, left: list[tuple[int, int]]) -> None:
    epochs = cache(disk, (2, 10), (4, 20), (7, 30))
    epochs.truncate_from_start(start)
    assert epochs.entries == left


def test_epoch_of_an_offset(disk: SimDisk) -> None:
    epochs = cache(disk, (2, 10), (4, 20))
    assert [epochs.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 1000)] == [-1, 2, 2, 4, 4]


def test_the_file_is_kafkas(disk: SimDisk) -> None:
    epochs = cache(disk, (2, 10), (4, 20))
    assert epochs.is_dirty
    epochs.flush()
    assert disk.read_bytes("/d/leader-epoch-checkpoint") == b"0\n2\n2 10\n4 20\n"
    assert cache(disk).entries == [(2, 10), (4, 20)]


@pytest.mark.parametrize("content", [b"", b"0\n2\n1 1\n", b"1\n0\n", b"0\n1\nx y\n"])
def test_an_unreadable_file_counts_as_empty(disk: SimDisk, content: bytes) -> None:
    disk.write_atomic("/d/leader-epoch-checkpoint", content)
    assert cache(disk).entries == []


def test_an_epoch_that_falls_is_logged(disk: SimDisk, caplog: pytest.LogCaptureFixture) -> None:
    epochs = cache(disk, (2, 10), (4, 20))
    epochs.assign(5, 20)  # no leader of epoch 4 has appended a record
    assert not caplog.records
    epochs.assign(3, 20)
    epochs.assign(6, 15)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert epochs.entries == [(2, 10), (6, 15)]
