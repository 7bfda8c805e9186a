"""Recovery of logs with few records, which leaves their indexes in memory, as in a new log."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.storage.logs import NOW_MS, append, offsets_in, open_log

from barnabas.storage.filesystem import OsFileSystem
from barnabas.storage.log import Log


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "t-0"
    path.mkdir()
    return path


def flush(log: Log) -> None:
    """Makes everything durable, as the broker does for acks=-1."""
    task = log.begin_flush()
    task.run()
    log.complete_flush(task)


@pytest.mark.parametrize("recovery_point", [0, 4])
def test_recovery_of_a_small_active_segment_creates_no_file(
    folder: Path, recovery_point: int, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(folder)
    append(log, 2)
    append(log, 2, timestamp=NOW_MS + 10)
    flush(log)
    log.close_handles()  # killed
    names = {path.name for path in folder.iterdir()}
    for _ in range(2):
        log = open_log(folder, clean=False, recovery_point=recovery_point)
        found = log.fetch_offset_by_timestamp(NOW_MS + 5)
        assert found is not None and found.offset == 2
        assert offsets_in(log) == [0, 1, 2, 3]
        log.close_handles()
        assert {path.name for path in folder.iterdir()} == names
    assert not caplog.records


@pytest.mark.parametrize("more", [0, 2])
def test_close_writes_the_indexes_that_recovery_left_in_memory(
    folder: Path, more: int, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(folder)
    append(log, 2)
    flush(log)
    log.close_handles()
    log = open_log(folder, clean=False)
    if more:
        append(log, more, timestamp=NOW_MS + 10)
    log.close()
    names = {path.name for path in folder.iterdir()}
    assert {"00000000000000000000.index", "00000000000000000000.timeindex"} <= names
    assert (folder / "00000000000000000000.timeindex").stat().st_size == (24 if more else 12)
    log = open_log(folder, recovery_point=2 + more)
    assert offsets_in(log) == [*range(2 + more)]
    log.close()
    assert {path.name for path in folder.iterdir()} == names
    assert not caplog.records


def test_recovery_writes_the_indexes_of_small_segments_that_were_rolled(folder: Path) -> None:
    log = open_log(folder)
    for _ in range(2):
        append(log, 2)
        log.roll()
    append(log, 2)
    log.close_handles()
    for path in folder.glob("*index"):
        path.unlink()
    log = open_log(folder, clean=False)
    log.close_handles()
    assert sorted(path.name for path in folder.glob("*.timeindex")) == [
        "00000000000000000000.timeindex",
        "00000000000000000002.timeindex",
    ]


class CountingFileSystem(OsFileSystem):
    """Counts the calls that look up a file by its name without opening it."""

    def __init__(self) -> None:
        super().__init__()
        self.looked_up = Counter[str]()

    def exists(self, path: str) -> bool:
        self.looked_up[path.rpartition("/")[2]] += 1
        return super().exists(path)

    def size(self, path: str) -> int:
        self.looked_up[path.rpartition("/")[2]] += 1
        return super().size(path)


def test_start_after_kill_looks_up_each_file_of_a_flushed_segment_once(folder: Path) -> None:
    log = open_log(folder)
    append(log, 2)
    log.close()
    fs = CountingFileSystem()
    log = open_log(folder, fs=fs, clean=False, recovery_point=2)
    assert offsets_in(log) == [0, 1]
    assert fs.looked_up == dict.fromkeys([f"{0:020}.log", f"{0:020}.index", f"{0:020}.timeindex"], 1)
    log.close_handles()
