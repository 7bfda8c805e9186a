"""What a broker has its lanes do for a log manager, done here and now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.storage.errors import LogDirFailedError
from barnabas.storage.lane_task import LaneTask
from barnabas.storage.log_manager import LogManager


def run(manager: LogManager, tasks: Iterable[LaneTask]) -> None:
    """Do all tasks; a directory that fails goes offline."""
    for task in tasks:
        try:
            task()
        except LogDirFailedError as error:
            manager.fail_log_dir(error.path, error.cause)


def load(manager: LogManager, strays: Mapping[str, str] | None = None) -> None:
    """Open all logs but those in the folders of `strays`."""
    run(manager, manager.loading_tasks(lambda folders: strays or {}))
    manager.finish_loading()
