"""The selection of the next log to clean, the states of logs, and their cleaner checkpoints."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping

from ...common.room_logger import room_logger
from ...protocol.topic_partition import TopicPartition
from ..log import Log
from ..log_checkpoints import Checkpoint
from ..log_dir import CLEANER_CHECKPOINT, LogDir
from .log_to_clean import LogToClean, log_to_clean

logger = room_logger("cleaner")


class LogCleanerManager:
    """Kafka's LogCleanerManager. Called only by the thread that owns the logs.

    A log is in a pass from `grab` to `done_cleaning`. An aborted pass can no longer replace segments. A paused log is
    not grabbed. `clean_offsets` holds the offset below which each log is clean; the checkpoints follow it.
    """

    def __init__(self, logs: Mapping[TopicPartition, Log], now_ms: Callable[[], int]) -> None:
        self.clean_offsets: dict[TopicPartition, int] = {}
        self.uncleanable: dict[TopicPartition, str] = {}
        """The reasons of cleaning failures. Such a log is not selected again until a command or a restart."""
        self._logs = logs
        self._now_ms = now_ms
        self._in_progress: dict[TopicPartition, LogToClean] = {}
        self._aborted: set[TopicPartition] = set()
        self._paused: Counter[TopicPartition] = Counter()
        self.is_held = False
        """Whether no log is grabbed, because a backup is reading the segments."""
        self.last_look_ms = now_ms()
        """The time of the last search for a log to clean."""
        self.last_look: list[LogToClean] = []
        """The compacted logs at that time, without the logs that are being cleaned."""

    # Choosing

    def look(self) -> list[LogToClean]:
        """Return all compacted logs that can be cleaned, due or not. Mark a log that cannot be read as uncleanable."""
        found = []
        for topic_partition, log in self._logs.items():
            if log.config.compact and self.may_clean(topic_partition):
                try:
                    found.append(self.describe(topic_partition, log))
                except Exception as error:  # noqa: BLE001 - an error of one log must not stop the cleaning of the others
                    self.mark_partition_uncleanable(topic_partition, f"{type(error).__name__}: {error}")
        self.last_look, self.last_look_ms = found, self._now_ms()
        return found

    def describe(self, topic_partition: TopicPartition, log: Log, *, ignore_lag: bool = False) -> LogToClean:
        """Return the dirty part of a log. Raises OSError."""
        clean_offset = self.clean_offsets.get(topic_partition)
        return log_to_clean(topic_partition, log, clean_offset, self._now_ms(), ignore_lag=ignore_lag)

    def may_clean(self, topic_partition: TopicPartition) -> bool:
        """Return whether no pass, pause or earlier failure prevents a pass."""
        return not (
            self.is_held
            or topic_partition in self._in_progress
            or self._paused[topic_partition]
            or topic_partition in self.uncleanable
        )

    def grab_filthiest_compacted_log(self) -> LogToClean | None:
        """Start a pass over the due log with the highest ratio of dirty bytes; None if no log is due."""
        due = [one for one in self.look() if one.is_due]
        if not due:
            return None
        filthiest = max(due, key=lambda one: one.dirty_ratio)
        self._in_progress[filthiest.topic_partition] = filthiest
        return filthiest

    def grab(
        self, topic_partition: TopicPartition, *, ignore_lag: bool = False, even_clean: bool = False
    ) -> LogToClean | None:
        """Start a pass over this log, even with a low dirty ratio; None if it is clean or may not be cleaned now.

        `even_clean` also accepts a clean log, which may contain expired tombstones. Raises OSError, and KeyError if
        there is no such log.
        """
        if not self.may_clean(topic_partition):
            return None
        found = self.describe(topic_partition, self._logs[topic_partition], ignore_lag=ignore_lag)
        if not (found.is_cleanable or (even_clean and found.is_clean)):
            return None
        self._in_progress[topic_partition] = found
        return found

    def note_begun(self, grabbed: LogToClean) -> bool:
        """Record that a pass may leave gaps in the log from now on; return whether the checkpoint must be written.

        Without an entry in the checkpoint, a recovery would treat the gaps as losses once the topic is not compacted.
        """
        is_new = grabbed.topic_partition not in self.clean_offsets
        self.clean_offsets.setdefault(grabbed.topic_partition, grabbed.first_dirty_offset)
        return is_new

    def done_cleaning(self, grabbed: LogToClean, clean_offset: int | None) -> None:
        """End a pass: the log is clean below `clean_offset` unless the pass failed (None) or was aborted."""
        topic_partition = grabbed.topic_partition
        del self._in_progress[topic_partition]
        if topic_partition in self._aborted:
            self._aborted.discard(topic_partition)
        elif clean_offset is not None:
            self.clean_offsets[topic_partition] = clean_offset

    def mark_partition_uncleanable(self, topic_partition: TopicPartition, reason: str) -> None:
        """Leave a log alone from now on; others go on."""
        logger.error("%s cannot be cleaned and is skipped: %s", topic_partition, reason)
        self.uncleanable[topic_partition] = reason

    # Stopping

    def is_in_progress(self, topic_partition: TopicPartition) -> bool:
        """Whether a pass is going on in a log."""
        return topic_partition in self._in_progress

    def is_aborted(self, topic_partition: TopicPartition) -> bool:
        """Whether the pass that is going on must not change the log any more."""
        return topic_partition in self._aborted

    def abort_cleaning(self, topic_partition: TopicPartition) -> bool:
        """Stop the pass in a log, if there is one, from changing the log; return whether there is one.

        A replacement that has begun is completed: wait for `done_cleaning`.
        """
        if topic_partition in self._in_progress:
            self._aborted.add(topic_partition)
            return True
        return False

    def pause_cleaning(self, topic_partition: TopicPartition) -> None:
        """Begin no pass in a log until `resume`, which is called as often as this was."""
        self._paused[topic_partition] += 1

    def resume_cleaning(self, topic_partition: TopicPartition) -> None:
        """End one `pause_cleaning`."""
        self._paused[topic_partition] -= 1
        if not self._paused[topic_partition]:
            del self._paused[topic_partition]

    # Checkpoints

    def load(self, log_dir: LogDir, held: Collection[TopicPartition]) -> None:
        """Load a directory's checkpoint for the logs in it, and discard the entries of logs that do not exist.

        The removal is durable before a new log of the same name can be created, which would otherwise count as clean.
        Raises OSError.
        """
        noted, here = log_dir.offsets[CLEANER_CHECKPOINT], set(held)
        kept = {topic_partition: offset for topic_partition, offset in noted.items() if topic_partition in here}
        self.clean_offsets.update(kept)
        if kept != noted:
            log_dir.write_checkpoint(CLEANER_CHECKPOINT, kept, log_dir.moment())

    def checkpoint_of(self, log_dir: LogDir, held: Collection[TopicPartition]) -> Checkpoint:
        """Return the current content of a directory's checkpoint."""
        offsets = {key: self.clean_offsets[key] for key in held if key in self.clean_offsets}
        return Checkpoint(log_dir, CLEANER_CHECKPOINT, offsets, log_dir.moment())

    def mark_truncated(self, topic_partition: TopicPartition, offset: int) -> bool:
        """Mark a truncated log as not clean from an offset on; return whether the checkpoint has to be written."""
        if self.clean_offsets.get(topic_partition, 0) > offset:
            self.clean_offsets[topic_partition] = offset
            return True
        return False

    def forget(self, topic_partition: TopicPartition) -> bool:
        """Forget a deleted log; return whether the checkpoint has to be written."""
        self.uncleanable.pop(topic_partition, None)
        return self.clean_offsets.pop(topic_partition, None) is not None
