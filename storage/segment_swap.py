"""Replaces segments by cleaned segments, in an order that is safe against a crash at any point."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from .errors import failing_dir
from .filesystem import FileSystem, parent_of
from .log_config import LogConfig
from .log_segment import LogSegment
from .segment_files import CLEANED_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX

if TYPE_CHECKING:
    from .segment_changes import SegmentChanges


class SegmentSwap:
    """One replacement, in four steps: Kafka's replaceSegments, cut where the thread changes.

    `prepare` and `finish` block and may run on any thread; `install` and `complete` belong to the log's. The order is
    `.cleaned` -> `.swap`, highest first -> (install) -> old ones `.deleted` -> `.swap` -> final names, each durable
    before the next. Until `install` readers use the old segments, whose names remain until then; afterwards they use
    the new segments, through handles that `prepare` opened and `complete` releases, so renames are safe.

    A directory keeps the new names of one fsync in no order. Hence the fsyncs in between, and logs before their
    indexes at the end: as long as a `.log.swap` is there, no file with a final name in its range is a new one.
    """

    def __init__(
        self, changes: "SegmentChanges", *, directory: str, fs: FileSystem, config: LogConfig, new: Sequence[int]
    ) -> None:
        self._changes = changes
        self._directory = directory
        self._fs = fs
        self._config = config
        self._new_bases = sorted(new)
        self.new: list[LogSegment] = []
        self.old: list[LogSegment] = []
        self._snapshots: list[str] = []
        self._is_installed = False

    def run(self, old: Sequence[int]) -> list[str]:
        """Run all steps; return the paths of the old files. Raises `LogDirFailedError`."""
        with failing_dir(parent_of(self._directory)):
            self.prepare()
            self.install(old)
            self.finish()
            return self.complete()

    def prepare(self) -> None:
        """First step, on any thread: open the `.cleaned` segments, which are durable, and name them `.swap`.

        Raises OSError. If that was for want of handles nothing has been renamed.
        """
        for base_offset in self._new_bases:
            segment = LogSegment(
                self._directory, base_offset, config=self._config, fs=self._fs, created_ms=0, suffix=CLEANED_SUFFIX
            )
            self.new.append(segment)
            segment.pin()
        for segment in reversed(self.new):
            segment.change_suffix(SWAP_SUFFIX)
            self._fs.fsync_dir(self._directory)

    def install(self, old: Sequence[int]) -> None:
        """Second step, on the log's thread: replace the segments with the base offsets `old` for readers."""
        self.old, self._snapshots = self._changes.replace(self.new, old)
        self._is_installed = True

    def finish(self) -> None:
        """Third step, on any thread: the names. Raises OSError.

        That means another attempt if it was for want of handles or space, as some names may be the new ones, else that
        the directory has failed.
        """
        fs = self._fs
        for segment in self.old:
            segment.change_suffix(DELETED_SUFFIX)
        for path in filter(fs.exists, self._snapshots):
            fs.rename(path, path + DELETED_SUFFIX)
        fs.fsync_dir(self._directory)
        renames = [pair for segment in self.new for pair in segment.files.renames_to("")]
        logs = [pair for pair in renames if pair[1].endswith(LOG_SUFFIX)]
        for group in (logs, [pair for pair in renames if pair not in logs]):
            for path, final in group:
                fs.rename(path, final)
            fs.fsync_dir(self._directory)

    def complete(self) -> list[str]:
        """Last step, on the log's thread; the paths of the old files, to be unlinked some time later."""
        for segment in self.new:
            segment.unpin("")
        self._changes.release()
        snapshots = [path + DELETED_SUFFIX for path in self._snapshots]
        return [path for segment in self.old for path in segment.files.existing_paths()] + snapshots

    def abandon(self) -> None:
        """Release the handles after a failed step, on the log's thread. The next start cleans up the files."""
        if self._is_installed:
            self._changes.release()
        else:
            for segment in self.new:
                segment.close_handles()
                with suppress(OSError):  # otherwise a later start would complete the swap
                    segment.change_suffix(CLEANED_SUFFIX)
