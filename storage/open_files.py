"""Keeps the number of open files of all logs below a limit: a log opens what it needs, and any may have to give."""

from collections.abc import Callable, Iterator, Mapping

from ..protocol.topic_partition import TopicPartition
from .filesystem import FileSystem
from .log import Log


class OpenFiles:
    """Has logs give files back, one after another, when many are open. For the thread that owns the logs.

    Nobody notes when a file was last used, as that would cost something with each use. A log that is in use all the
    time loses its files once a round, and opening one costs some microseconds.
    """

    def __init__(
        self, fs: FileSystem, logs: Mapping[TopicPartition, Log], limit: int, is_owner: Callable[[], bool]
    ) -> None:
        """`is_owner` says whether the present thread owns the logs: on others there is only hope."""
        self._fs = fs
        self._logs = logs
        self._enough = limit * 3 // 4
        self._is_owner = is_owner
        self._round: Iterator[Log] = iter(())
        fs.when_crowded(limit, self._make_room)

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
