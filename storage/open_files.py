"""Keeps the number of open files of all logs below a limit: a log opens files as needed, and any log may lose them."""

from collections.abc import Callable, Iterator, Mapping

from ..protocol.topic_partition import TopicPartition
from .filesystem import FileSystem
from .log import Log


class OpenFiles:
    """Closes files of one log after another when many are open. For the thread that owns the logs.

    The last use of a file is not recorded, because that would cost time with each use. A log that is always in use
    loses its files once per round, and opening a file costs some microseconds.
    """

    def __init__(
        self, fs: FileSystem, logs: Mapping[TopicPartition, Log], limit: int, is_owner: Callable[[], bool]
    ) -> None:
        """`is_owner` returns whether the current thread owns the logs: other threads cannot close files."""
        self._fs = fs
        self._logs = logs
        self._enough = limit * 3 // 4
        self._is_owner = is_owner
        self._round: Iterator[Log] = iter(())
        fs.before_opening_above(limit, self._make_room)

    def _make_room(self) -> None:
        if not self._is_owner():
            return
        for _ in range(len(self._logs)):
            if self._fs.open_files <= self._enough:
                return
            log = next(self._round, None)
            if log is None:
                self._round = iter(list(self._logs.values()))
                log = next(self._round)
            log.give_files_back()
