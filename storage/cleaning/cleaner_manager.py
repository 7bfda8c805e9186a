"""Which log is to be cleaned next, which are being cleaned or must not be, and how far each is clean."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping

from ...protocol.room_logger import room_logger
from ...protocol.topic_partition import TopicPartition
from ..log import Log
from ..log_checkpoints import Checkpoint
from ..log_dir import CLEANER_CHECKPOINT, LogDir
from .log_to_clean import LogToClean, log_to_clean

logger = room_logger("cleaner")


class CleanerManager:
    """Kafka's LogCleanerManager. Everything by the thread that owns the logs.

    A log is in the middle of a pass from `grab` to `done`; an aborted pass may put nothing into its place any more.
    A paused log is not grabbed. `clean_offsets` says up to where logs are clean: the checkpoints, which follow it.
    """

    def __init__(self, logs: Mapping[TopicPartition, Log], now_ms: Callable[[], int]) -> None:
        self.clean_offsets: dict[TopicPartition, int] = {}
        self.uncleanable: dict[TopicPartition, str] = {}
        """Why cleaning failed: such a log is left alone until it is asked for, or the broker starts anew."""
        self._logs = logs
        self._now_ms = now_ms
        self._in_progress: dict[TopicPartition, LogToClean] = {}
        self._aborted: set[TopicPartition] = set()
        self._paused: Counter[TopicPartition] = Counter()
        self.last_look_ms = now_ms()
        """When somebody last looked for a log to clean."""
        self.last_look: list[LogToClean] = []
        """All compacted logs as they were then, those left out that are in the middle of a pass."""

    # Choosing

    def look(self) -> list[LogToClean]:
        """All compacted logs that may be cleaned, whether that is due or not. A log that cannot be read is marked."""
        found = []
        for topic_partition, log in self._logs.items():
            if log.config.compact and self.may_clean(topic_partition):
                try:
                    found.append(self.describe(topic_partition, log))
                except Exception as error:  # noqa: BLE001 - whatever is wrong with one log must not stop the others
                    self.mark_uncleanable(topic_partition, f"{type(error).__name__}: {error}")
        self.last_look, self.last_look_ms = found, self._now_ms()
        return found

    def describe(self, topic_partition: TopicPartition, log: Log, *, ignore_lag: bool = False) -> LogToClean:
        """How dirty a log is now. Raises OSError."""
        clean_offset = self.clean_offsets.get(topic_partition)
        return log_to_clean(topic_partition, log, clean_offset, self._now_ms(), ignore_lag=ignore_lag)

    def may_clean(self, topic_partition: TopicPartition) -> bool:
        """Whether no pass, pause or earlier failure stands against a pass."""
        return not (
            topic_partition in self._in_progress or self._paused[topic_partition] or topic_partition in self.uncleanable
        )

    def grab_filthiest(self) -> LogToClean | None:
        """The log with the highest part of dirty bytes of those that are due, for a pass; None if none is."""
        due = [one for one in self.look() if one.is_due]
        if not due:
            return None
        filthiest = max(due, key=lambda one: one.dirty_ratio)
        self._in_progress[filthiest.topic_partition] = filthiest
        return filthiest

    def grab(
        self, topic_partition: TopicPartition, *, ignore_lag: bool = False, even_clean: bool = False
    ) -> LogToClean | None:
        """This log for a pass, however little of it is dirty; None if nothing is, or if it may not be cleaned now.

        With `even_clean` also one that is clean, in which tombstones may have become too old. Raises OSError, KeyError
        if there is no such log.
        """
        if not self.may_clean(topic_partition):
            return None
        found = self.describe(topic_partition, self._logs[topic_partition], ignore_lag=ignore_lag)
        if not (found.is_cleanable or (even_clean and found.is_clean)):
            return None
        self._in_progress[topic_partition] = found
        return found

    def note_begun(self, grabbed: LogToClean) -> bool:
        """A pass may leave gaps from now on, and a checkpoint that names the log says so; whether it has to follow.

        A recovery would take them for losses if the topic were no longer compacted then.
        """
        is_new = grabbed.topic_partition not in self.clean_offsets
        self.clean_offsets.setdefault(grabbed.topic_partition, grabbed.first_dirty_offset)
        return is_new

    def done(self, grabbed: LogToClean, clean_offset: int | None) -> None:
        """The pass is over; the log is clean below `clean_offset` unless the pass failed (None) or was aborted."""
        topic_partition = grabbed.topic_partition
        del self._in_progress[topic_partition]
        if topic_partition in self._aborted:
            self._aborted.discard(topic_partition)
        elif clean_offset is not None:
            self.clean_offsets[topic_partition] = clean_offset

    def mark_uncleanable(self, topic_partition: TopicPartition, reason: str) -> None:
        """Leave a log alone from now on; others go on."""
        logger.error("%s cannot be cleaned and is left alone: %s", topic_partition, reason)
        self.uncleanable[topic_partition] = reason

    # Stopping

    def is_in_progress(self, topic_partition: TopicPartition) -> bool:
        """Whether a pass is going on in a log."""
        return topic_partition in self._in_progress

    def is_aborted(self, topic_partition: TopicPartition) -> bool:
        """Whether the pass that is going on must not change the log any more."""
        return topic_partition in self._aborted

    def abort(self, topic_partition: TopicPartition) -> bool:
        """Let the pass in a log, if there is one, change nothing from now on; whether there is one.

        What it has begun to put into place comes to its end: wait for `done`.
        """
        if topic_partition in self._in_progress:
            self._aborted.add(topic_partition)
            return True
        return False

    def pause(self, topic_partition: TopicPartition) -> None:
        """Begin no pass in a log until `resume`, which is called as often as this was."""
        self._paused[topic_partition] += 1

    def resume(self, topic_partition: TopicPartition) -> None:
        """The end of one `pause`."""
        self._paused[topic_partition] -= 1
        if not self._paused[topic_partition]:
            del self._paused[topic_partition]

    # Checkpoints

    def load(self, log_dir: LogDir, held: Collection[TopicPartition]) -> None:
        """Take over what a directory's checkpoint says of the logs in it; of others, which are gone, it is forgotten.

        Durably so before a new log of such a name can begin: it would count as clean. Raises OSError.
        """
        noted, here = log_dir.offsets[CLEANER_CHECKPOINT], set(held)
        kept = {topic_partition: offset for topic_partition, offset in noted.items() if topic_partition in here}
        self.clean_offsets.update(kept)
        if kept != noted:
            log_dir.write_checkpoint(CLEANER_CHECKPOINT, kept, log_dir.moment())

    def checkpoint_of(self, log_dir: LogDir, held: Collection[TopicPartition]) -> Checkpoint:
        """What a directory's checkpoint should say now of the logs in it."""
        offsets = {key: self.clean_offsets[key] for key in held if key in self.clean_offsets}
        return Checkpoint(log_dir, CLEANER_CHECKPOINT, offsets, log_dir.moment())

    def truncated(self, topic_partition: TopicPartition, offset: int) -> bool:
        """A log was cut at an offset, and is not clean beyond it; whether the checkpoint has to follow."""
        if self.clean_offsets.get(topic_partition, 0) > offset:
            self.clean_offsets[topic_partition] = offset
            return True
        return False

    def forget(self, topic_partition: TopicPartition) -> bool:
        """A log is deleted; whether the checkpoint has to follow."""
        self.uncleanable.pop(topic_partition, None)
        return self.clean_offsets.pop(topic_partition, None) is not None
