"""Blocking work of a log directory, and the meaning of its errors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .errors import NO_HANDLE, LogDirFailedError, LogFailedError, failing_dir
from .log import Log
from .unsynced_files import run_together

MANY_LOGS = 64
"""The number of closed or recovered logs from which syncs of the disk replace the syncs of single files. A log needs a
sync of its segments, indexes, leader epochs and folder, each a commit of the journal of 1 to 2 ms. A sync of the disk
also writes the dirty data of other programs."""


@dataclass(frozen=True, slots=True)
class LaneTask:
    """Blocking work of one log directory, to be called on any thread, one at a time per lane.

    Raises `LogDirFailedError`, which the owner of the manager passes to `HeldLogs.fail`, and `OSError` when the
    process has too many files open, which does not indicate a failing disk.
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
    """Close logs of one directory for good, with their syncs grouped; very many logs by syncs of the whole disk.

    Raises `LogDirFailedError`, and `LogFailedError` for a log whose files cannot be written, after closing the others.
    """
    failure: LogFailedError | None = None
    tasks = []
    for log in logs:
        try:
            task = log.begin_close()
        except LogFailedError as error:
            failure = error
        else:
            if task is not None:
                tasks.append((log, task))
    if tasks:
        with failing_dir(logs[0].directory):
            disk = logs[0].directory if len(tasks) >= MANY_LOGS else ""
            run_together([task for _, task in tasks], disk=disk)
    for log, task in tasks:
        if task.failure is None:
            log.complete_flush(task)
        else:
            failure = LogFailedError(log.topic_partition, log.directory, task.failure)
            task.give_up()
    for log in logs:
        log.close_handles()
    if failure is not None:
        raise failure
