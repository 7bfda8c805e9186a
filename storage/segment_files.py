"""The files of a segment: their names, their existence, and their renaming."""

from .filesystem import FileSystem

LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX = ".log", ".index", ".timeindex", ".txnindex"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX = ".cleaned", ".swap", ".deleted"


def segment_file_name(base_offset: int, suffix: str) -> str:
    """Kafka's name of a segment's file: 20 digits, then the suffix."""
    return f"{base_offset:020d}{suffix}"


class SegmentFiles:
    """Up to four files of one base offset in one directory, which share a second suffix while they wait or are new.

    Only names: the segment passes new names to the owners of open files.
    """

    __slots__ = ("_base_offset", "_directory", "_fs", "_pinned_modified_ms", "_suffix")

    def __init__(self, directory: str, base_offset: int, fs: FileSystem, suffix: str) -> None:
        """`suffix` is `.cleaned`, `.swap`, `.deleted` or nothing."""
        self._directory = directory
        self._base_offset = base_offset
        self._fs = fs
        self._suffix = suffix
        self._pinned_modified_ms: int | None = None

    def path_of(self, suffix: str) -> str:
        """Path of the file that `suffix` names (`.log`, `.index`, …)."""
        return f"{self._directory}/{segment_file_name(self._base_offset, suffix)}{self._suffix}"

    def exists(self, suffix: str) -> bool:
        """Whether the file that `suffix` names is there."""
        return self._fs.exists(self.path_of(suffix))

    @property
    def paths(self) -> list[str]:
        """The path of each file, existing or not."""
        return [self.path_of(suffix) for suffix in SEGMENT_SUFFIXES]

    def existing_paths(self) -> list[str]:
        return [path for path in self.paths if self._fs.exists(path)]

    @property
    def modified_ms(self) -> int:
        """Return the time of the last write to the `.log` file, in ms since the epoch. Raises OSError."""
        pinned = self._pinned_modified_ms
        return self._fs.modified_ms(self.path_of(LOG_SUFFIX)) if pinned is None else pinned

    def renames_to(self, new_suffix: str) -> list[tuple[str, str]]:
        """Return the existing files, and their names with another suffix."""
        return [(path, path.removesuffix(self._suffix) + new_suffix) for path in self.existing_paths()]

    def rename_to(self, new_suffix: str) -> None:
        """Rename the files that exist, from `.cleaned` to `.swap` and so on; not yet durable. Raises OSError."""
        for old, new in self.renames_to(new_suffix):
            self._fs.rename(old, new)
        self._suffix = new_suffix

    def pin(self) -> None:
        """Answer without access to the disk until `unpin`, because the files are about to be renamed."""
        self._pinned_modified_ms = self.modified_ms

    def unpin(self, suffix: str) -> None:
        """End `pin`: the files have been renamed to this suffix."""
        self._suffix = suffix
        self._pinned_modified_ms = None

    def moved_to(self, directory: str) -> None:
        """Use another path: the directory has been renamed."""
        self._directory = directory
