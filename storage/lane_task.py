"""Blocking work of a log directory, and what its errors mean."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .errors import NO_HANDLE, LogDirFailedError, failing_dir
from .log import Log
from .unsynced_files import run_together


@dataclass(frozen=True, slots=True)
class LaneTask:
    """Blocking work of one log directory, to be called on any thread, one at a time per lane.

    Raises `LogDirFailedError`, which the owner of the manager answers with `fail_log_dir`, and `OSError` when the
    process has too many files open, which says nothing about the disk.
    """

    lane: str
    work: Callable[[], object]

    def __call__(self) -> None:
        try:
            self.work()
        except OSError as error:
            if error.errno in NO_HANDLE:
                raise
            raise LogDirFailedError(self.lane, error) from error


def close_together(logs: Sequence[Log]) -> None:
    """Close logs of one directory for good, with their syncs grouped. Raises `LogDirFailedError`."""
    tasks = [(log, task) for log in logs if (task := log.begin_close()) is not None]
    if tasks:
        with failing_dir(logs[0].directory):
            run_together([task for _, task in tasks])
    for log, task in tasks:
        log.complete_flush(task)
    for log in logs:
        log.close_handles()
