"""The content of a log directory's checkpoints at a moment, to be written by any thread."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from ..common.error_description import describe_error
from ..common.room_logger import room_logger
from ..common.steps import run_to_end
from ..protocol.topic_partition import TopicPartition
from .errors import PASSING
from .log import Log
from .log_dir import HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, LogDir

CHECKPOINTED: Mapping[str, Callable[[Log], int]] = {
    RECOVERY_POINT_CHECKPOINT: lambda log: log.recovery_point,
    LOG_START_OFFSET_CHECKPOINT: lambda log: log.log_start_offset,
    HIGH_WATERMARK_CHECKPOINT: lambda log: log.high_watermark,
}
"""The checkpoints that follow the logs, and the offset that each contains."""

LOGS_PER_STEP = 200
"""Logs whose offsets are read in one step, 0.1 ms."""

logger = room_logger("storage")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The content of a log directory's checkpoint, made by the thread that owns the logs and written by any thread.

    Threads may write in any order: a late write does not replace a newer file.
    """

    log_dir: LogDir
    name: str
    offsets: Mapping[TopicPartition, int]
    moment: int

    def write(self) -> None:
        """Write it durably, unless the file is equal already. Raises OSError."""
        self.log_dir.write_checkpoint(self.name, self.offsets, self.moment)

    def write_if_room(self) -> None:
        """Write a checkpoint as `write` does; if the disk is full, keep the old checkpoint."""
        try:
            self.write()
        except OSError as error:
            if error.errno not in PASSING:
                raise
            # The old file is still correct, only older, and the deletion of segments must remain possible. One line
            # until the file is written again: the high watermarks are written every five seconds.
            if self.name not in self.log_dir.unwritten_checkpoints:
                self.log_dir.unwritten_checkpoints.add(self.name)
                logger.warning("%s/%s could not be written: %s", self.log_dir.path, self.name, describe_error(error))
        else:
            self.log_dir.unwritten_checkpoints.discard(self.name)


class LogCheckpoints:
    """Looks at the logs of a manager, which go on changing. For the thread that owns the logs."""

    def __init__(self, logs: Mapping[TopicPartition, Log], dir_of: Mapping[TopicPartition, LogDir]) -> None:
        self.arriving: dict[TopicPartition, tuple[LogDir, Log | None]] = {}
        """Logs that checkpoints must contain before they are in `logs`: copies, and None for logs yet to be created."""
        self._logs = logs
        self._dir_of = dir_of

    def take(self, log_dir: LogDir, name: str) -> Checkpoint:
        """Return the current content of the checkpoint `name` of a directory."""
        return run_to_end(self.take_in_steps(log_dir, name))

    def take_in_steps(self, log_dir: LogDir, name: str) -> Generator[None, None, Checkpoint]:
        """Return the content of a directory's checkpoint, read in steps. An offline log keeps its old entry.

        The checkpoint contains the logs that the directory had at the first step, with offsets read in a later step,
        and its moment is that of the first step. `LogDir` therefore drops it if a newer checkpoint is already written,
        and keeps entries that were changed after the first step, for example the entries of new logs.
        """
        read, moment = CHECKPOINTED[name], log_dir.moment()
        held, arriving = list(self._dir_of.items()), list(self.arriving.items())
        # A recovery point of 0 is stored, because it marks a log as created by this broker.
        least = 0 if name == RECOVERY_POINT_CHECKPOINT else 1
        offsets = {}
        for first in range(0, len(held), LOGS_PER_STEP):
            for topic_partition, holder in held[first : first + LOGS_PER_STEP]:
                if holder is log_dir:
                    log = self._logs.get(topic_partition)
                    if log is not None:
                        offset = read(log)
                    elif topic_partition in self._dir_of:
                        offset = log_dir.offsets[name].get(topic_partition, -1)
                    else:
                        continue  # deleted since the first step
                    if offset >= least:
                        offsets[topic_partition] = offset
            yield
        for topic_partition, (holder, log) in arriving:
            if holder is log_dir:
                offset = 0 if log is None else read(log)
                if offset >= least:
                    offsets[topic_partition] = offset
                else:
                    offsets.pop(topic_partition, None)
        return Checkpoint(log_dir, name, offsets, moment)

    @contextmanager
    def announced(self, topic_partition: TopicPartition, log_dir: LogDir, log: Log) -> Iterator[None]:
        """Durably names a log in the checkpoints of a directory while it is moved there. Raises OSError."""
        self.arriving[topic_partition] = (log_dir, log)
        try:
            for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT):
                self.take(log_dir, name).write()
            yield
        finally:
            del self.arriving[topic_partition]
