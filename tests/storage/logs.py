"""Logs and record batches for the storage tests."""

from __future__ import annotations

import random
from collections.abc import Generator
from pathlib import Path
from typing import Any, TypeVar

from barnabas.protocol.record_batch import ControlType, RecordBatchBuilder, control_batch, iter_batches
from barnabas.storage.filesystem import FileSystem, OsFileSystem
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig

NOW_MS = 1_700_000_000_000

T = TypeVar("T")


class Clock:
    """A wall clock that stands still until it is told to move."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, milliseconds: int) -> None:
        self.now_ms += milliseconds


def batch(count: int = 1, *, timestamp: int = NOW_MS, step: int = 1, size: int = 20, **fields: Any) -> memoryview:
    """A batch of `count` records as a producer sends it; timestamps grow by `step`."""
    builder = RecordBatchBuilder(**fields)
    for index in range(count):
        assert builder.append(b"key", b"v" * size, (), timestamp + index * step)
    return memoryview(bytearray(builder.build()))


def marker(producer_id: int, *, epoch: int = 0, commit: bool, coordinator_epoch: int = 0) -> memoryview:
    """The end of a transaction, as a coordinator writes it."""
    control_type = ControlType.COMMIT if commit else ControlType.ABORT
    return memoryview(
        bytearray(
            control_batch(
                control_type,
                producer_id=producer_id,
                producer_epoch=epoch,
                coordinator_epoch=coordinator_epoch,
                timestamp=NOW_MS,
            )
        )
    )


def finished(steps: Generator[None, None, T]) -> T:
    """The result of work that is done in steps."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def retain(log: Log) -> list[str]:
    """A round of retention without any sync; the files that are to be unlinked."""
    below, paths = log.begin_retention(), []
    while below is not None and (more := log.finish_retention(below, 64)):
        paths += more
    return paths


def open_log(
    path: Path | str,
    *,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    clean: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    **settings: Any,
) -> Log:
    """The log in directory `path`, opened with these topic settings."""
    return Log.open(
        str(path),
        config=LogConfig(**settings),
        fs=fs or OsFileSystem(),
        now_ms=clock or Clock(),
        rng=random.Random(0),
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        clean_shutdown=clean,
    )


def append(log: Log, count: int = 1, *, leader_epoch: int = 0, **fields: Any) -> int:
    """Append a batch of `count` records as leader; returns its first offset."""
    return log.append_as_leader(batch(count, **fields), leader_epoch=leader_epoch).first_offset


def offsets_in(log: Log, start: int | None = None) -> list[int]:
    """The offsets of all records that can be read from `start` on, one fetch after another."""
    offset = log.log_start_offset if start is None else start
    found: list[int] = []
    while offset < log.log_end_offset:
        batches = list(iter_batches(log.read(offset, 300, min_one_message=True).data))
        if not batches:
            break
        found += [record.offset for entry in batches for record in entry.records() if record.offset >= offset]
        offset = batches[-1].last_offset + 1
    return found


def base_offsets(log: Log) -> list[int]:
    """Base offsets of the log's segments."""
    return [segment.base_offset for segment in log.segments]
