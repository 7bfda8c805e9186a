"""The machine's disk with an injectable fault. Without a fault all calls are passed on."""

from __future__ import annotations

import os
from functools import partial

from ..storage.filesystem import OsFile, OsFileSystem


class FaultyDisk(OsFileSystem):
    """A disk that, between `fail` and `recover`, accepts no bytes and creates no file or directory. Thread-safe."""

    def __init__(self) -> None:
        super().__init__()
        self._errno: int | None = None
        self._kept: dict[OsFile, partial[int]] = {}
        """The error of failing writes."""

    def fail(self, number: int) -> None:
        """Let every write fail with this error from now on."""
        self._errno = number
        for file in list(self._open_files):
            if isinstance(file, OsFile):
                self._spoil(file, number)

    def recover(self) -> None:
        """Let writes succeed again."""
        self._errno = None
        kept, self._kept = self._kept, {}
        for file, pwrite in kept.items():
            if file in self._open_files:
                file.pwrite = pwrite

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, readonly: bool = False) -> OsFile:
        if self._errno is not None and (exclusive or (create and not self.exists(path))):
            _refuse(self._errno)
        file = super().open(path, create=create, exclusive=exclusive, readonly=readonly)
        if self._errno is not None:
            self._spoil(file, self._errno)
        return file

    def mkdir(self, path: str) -> None:
        if self._errno is not None:
            _refuse(self._errno)
        super().mkdir(path)

    def _spoil(self, file: OsFile, number: int) -> None:
        self._kept.setdefault(file, file.pwrite)
        file.pwrite = partial(_refuse, number)


class ForgetfulFile(OsFile):
    """A file that is never synced to disk: readers on this machine find the data in the page cache."""

    __slots__ = ()

    def fsync(self) -> None:
        self.fileno()

    def fdatasync(self) -> None:
        self.fileno()

    def check_writeback(self) -> None:
        self.fileno()


class ForgetfulDisk(FaultyDisk):
    """A file system for temporary data without syncs, which would take most of the time of a broker's start."""

    file_class = ForgetfulFile

    def fsync_dir(self, path: str) -> None:
        """Skip the sync."""

    def sync_disk(self, path: str) -> bool:
        """Skip the sync."""
        return True


def _refuse(number: int, *_: object) -> int:
    raise OSError(number, os.strerror(number))
