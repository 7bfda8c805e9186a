"""What a broker has its lanes do for a log manager, done here and now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.common.steps import run_to_end
from barnabas.storage.errors import LogDirFailedError
from barnabas.storage.lane_task import LaneTask
from barnabas.storage.log import Log
from barnabas.storage.log_checkpoints import CHECKPOINTED
from barnabas.storage.log_dir import LOG_START_OFFSET_CHECKPOINT
from barnabas.storage.log_manager import LogManager


def run(manager: LogManager, tasks: Iterable[LaneTask]) -> None:
    """Do all tasks; a directory that fails goes offline."""
    for task in tasks:
        try:
            task()
        except LogDirFailedError as error:
            manager.held.fail(error)


def load(manager: LogManager, strays: Mapping[str, str] | None = None) -> None:
    """Open all logs but those in the folders of `strays`."""
    run(manager, manager.finding_tasks())
    run(manager, manager.loading_tasks(lambda folders: strays or {}))
    manager.finish_loading()


def flush(manager: LogManager, logs: Iterable[Log]) -> None:
    """Make what is in logs durable."""
    for log in logs:
        run(manager, [LaneTask(log.directory, log.flush)])


def checkpoint(manager: LogManager, *names: str) -> None:
    """Write some checkpoints, or all of them."""
    for name in names or CHECKPOINTED:
        run(manager, run_to_end(manager.checkpoint_steps(name)))


def retain(manager: LogManager) -> None:
    """All of retention, but for the files, which go with `delete_due`."""
    below = manager.retention.begin(list(manager.logs))
    if below:
        checkpoint(manager, LOG_START_OFFSET_CHECKPOINT)
    while tasks := manager.retention.finish(below, 64):
        run(manager, tasks)


def delete_due(manager: LogManager) -> None:
    """Remove the files of deleted logs and segments whose delay is over."""
    run(manager, manager.deletion_tasks())


def shut_down(manager: LogManager, broker_epoch: int = -1) -> None:
    """A clean stop."""
    try:
        run(manager, manager.closing_tasks())
        run(manager, manager.marking_tasks(broker_epoch))
    finally:
        manager.close()
