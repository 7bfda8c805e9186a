"""How long a segment has been growing, by which it is rolled in time."""

from .file_records import FileRecords
from .log_config import NEVER, LogConfig


class SegmentAge:
    """Counts from the timestamp of the first batch, or from when the segment was made if that batch has none."""

    __slots__ = ("_created_ms", "_records", "_roll_jitter_ms", "first_timestamp")

    def __init__(self, records: FileRecords, created_ms: int, roll_jitter_ms: int) -> None:
        """Both in ms; the jitter is how much earlier than `segment.ms` the segment is rolled."""
        self._records = records
        self._created_ms = created_ms
        self._roll_jitter_ms = roll_jitter_ms
        self.first_timestamp: int | None = None
        """Largest timestamp of the first batch; None while unknown or empty."""

    def load_first_timestamp(self) -> int | None:
        """`first_timestamp`, read from the file if an earlier run wrote it. Raises OSError, `CorruptSegmentError`."""
        if self.first_timestamp is None:
            for batch in self._records.batch_positions():
                self.first_timestamp = batch.max_timestamp
                break
        return self.first_timestamp

    def is_over(self, config: LogConfig, max_timestamp: int, now_ms: int) -> bool:
        """Whether a batch with `max_timestamp` comes too late for the segment. Errors as `load_first_timestamp`."""
        first = self.load_first_timestamp()
        waited_ms = max_timestamp - first if first is not None and first >= 0 else now_ms - self._created_ms
        return waited_ms > config.max_segment_ms - self._roll_jitter_ms

    def roll_timestamp(self, config: LogConfig) -> int:
        """The timestamp above which a batch rolls the segment; below any, if only the clock tells. Errors as above."""
        first = self.load_first_timestamp()
        if first is None:
            return NEVER
        return first + config.max_segment_ms - self._roll_jitter_ms if first >= 0 else -2

    def begin_anew(self, now_ms: int) -> None:
        """The segment is empty again."""
        self._created_ms = now_ms
        self.first_timestamp = None
