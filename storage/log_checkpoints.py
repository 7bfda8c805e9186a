"""What the checkpoints of a log directory should say, and writing them when that is something new."""

import logging
from collections.abc import Callable, Mapping

from ..protocol.topic_partition import TopicPartition
from .errors import PASSING
from .log import Log
from .log_dir import HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, LogDir

CHECKPOINTED: Mapping[str, Callable[[Log], int]] = {
    RECOVERY_POINT_CHECKPOINT: lambda log: log.recovery_point,
    LOG_START_OFFSET_CHECKPOINT: lambda log: log.log_start_offset,
    HIGH_WATERMARK_CHECKPOINT: lambda log: log.high_watermark,
}
"""The checkpoints that follow the logs, and what each keeps of one."""

_logger = logging.getLogger(__name__)


class LogCheckpoints:
    """Looks at the logs of a manager, which go on changing. Offsets are read by the thread that owns the logs."""

    def __init__(self, logs: Mapping[TopicPartition, Log], dir_of: Mapping[TopicPartition, LogDir]) -> None:
        self._logs = logs
        self._dir_of = dir_of

    def offsets(self, log_dir: LogDir, name: str) -> dict[TopicPartition, int]:
        """What the checkpoint `name` of a directory should say now; an offline log keeps what it has there."""
        read = CHECKPOINTED[name]
        offsets = {}
        for topic_partition, holder in self._dir_of.items():
            if holder is not log_dir:
                continue
            log = self._logs.get(topic_partition)
            offset = read(log) if log is not None else log_dir.offsets[name].get(topic_partition, -1)
            # That a recovery point is 0 says that the log is this broker's own.
            if offset > 0 or (offset == 0 and name == RECOVERY_POINT_CHECKPOINT):
                offsets[topic_partition] = offset
        return offsets


def replace_checkpoint(log_dir: LogDir, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Write a checkpoint unless it says so already; one for which there is no room stays as it is. Raises OSError."""
    if offsets == log_dir.offsets[name]:
        return
    try:
        log_dir.write_checkpoint(name, offsets)
    except OSError as error:
        if error.errno not in PASSING:
            raise
        # The old file is still there and still right, only older; deleting segments must stay possible now.
        _logger.warning("%s/%s could not be written: %s", log_dir.path, name, error)
