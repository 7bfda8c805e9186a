"""The real disk with faults that a test turns on: an error number for an operation below a folder."""

from __future__ import annotations

import os
from typing import Any

from barnabas.storage.filesystem import OsFileSystem

OPERATIONS = ("pread", "pwrite", "fsync", "fdatasync", "check_writeback", "truncate", "fallocate")


class FaultyFile:
    """A file whose operations ask for permission."""

    def __init__(self, inner: Any, path: str, disk: FaultyFileSystem) -> None:
        self._inner = inner
        self._path = path
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._inner, name)
        if name not in OPERATIONS:
            return inner

        def checked(*arguments: Any) -> Any:
            self._disk.check(name, self._path)
            return inner(*arguments)

        return checked


class FaultyFileSystem(OsFileSystem):
    """Set `faults[operation, folder] = errno` at any time; `open` and `fsync_dir` are operations, too."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: dict[tuple[str, str], int] = {}
        self.refused = 0

    def check(self, operation: str, path: str) -> None:
        """Raises OSError if a fault is on."""
        for (faulty, folder), number in self.faults.items():
            if faulty == operation and path.startswith(folder):
                self.refused += 1
                raise OSError(number, os.strerror(number), path)

    def open(self, path: str, **options: Any) -> Any:
        self.check("open", path)
        return FaultyFile(super().open(path, **options), path, self)

    def fsync_dir(self, path: str) -> None:
        self.check("fsync_dir", path)
        super().fsync_dir(path)

    def sync_disk(self, path: str) -> bool:
        self.check("fsync_dir", path)
        return super().sync_disk(path)
