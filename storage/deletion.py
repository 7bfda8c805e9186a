"""Files of deleted logs and segments, between their last name and their end."""

from collections.abc import Callable
from dataclasses import dataclass

from .log import Log
from .log_dir import LogDir


@dataclass(slots=True)
class Deletion:
    """Files that go when their readers have had time to finish."""

    due_ms: int
    log_dir: LogDir
    remove: Callable[[], None]
    log: Log | None = None
    """The deleted log, whose handles are given back first."""
    is_done: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do here before the next start."""
        return self.is_done or not self.log_dir.is_online

    def close_handles(self) -> None:
        """Gives the handles of a deleted log back."""
        if self.log is not None:
            self.log.close_handles()

    def run(self) -> None:
        """Removes the files. Raises `OSError`."""
        self.remove()
        self.is_done = True
