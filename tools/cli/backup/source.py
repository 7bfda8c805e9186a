"""The files of a running broker on this machine, also after a deletion has renamed them, and the hold on them."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from types import TracebackType
from typing import Any, Self

from ..local_broker import LocalBroker, LocalBrokerError

ATTEMPTS = 5
"""Number of searches for a folder or a file, which the broker may rename between the listing and the open."""
_DELETED_FOLDER = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]+)\.[0-9a-f]{32}-delete", re.ASCII)


class SourceChangedError(Exception):
    """A file or folder is missing, or a file is shorter than the broker reported, which is normal without a hold."""


class HoldLostError(Exception):
    """The broker has released its files before the copy was complete, because it was stopped or did not respond."""


class HeldFiles:
    """The hold on a broker's files during a backup. A daemon thread extends it until `end`."""

    def __init__(self, broker: LocalBroker) -> None:
        self._broker = broker
        self._ended = threading.Event()
        self._lost: str | None = None
        self.facts: dict[str, Any] = {}

    def __enter__(self) -> Self:
        """Begin the hold. Raises LocalBrokerError."""
        self.facts = self._broker.request("POST", "/backup", {"hold": "true"})
        self._thread = threading.Thread(target=self._extend, name="backup hold", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._ended.is_set():
            with suppress(LocalBrokerError, HoldLostError):
                self.end()

    def check(self) -> None:
        """Raise HoldLostError if the broker has released the files."""
        if self._lost is not None:
            raise HoldLostError(self._lost)

    def end(self) -> None:
        """Release the files. Raises HoldLostError if they were released before."""
        self._ended.set()
        self._thread.join()
        try:
            self._broker.request("POST", "/backup/end", {"hold": self.facts["hold"]})
        except LocalBrokerError as error:
            raise HoldLostError(str(error)) from None
        self.check()

    def _extend(self) -> None:
        """Extend the hold five times as often as necessary; runs on a thread."""
        while not self._ended.wait(self.facts["hold_seconds"] / 5):
            try:
                self._broker.request("POST", "/backup/extend", {"hold": self.facts["hold"]})
            except LocalBrokerError as error:
                self._lost = str(error)
                return


@dataclass(frozen=True, slots=True)
class SourceFile:
    """An open file of the broker."""

    descriptor: int
    size: int
    inode: int
    changed_ns: int

    def read(self, length: int, position: int) -> bytes:
        """Return `length` bytes from `position` on. Raises SourceChangedError if the file ends before, OSError."""
        pieces = []
        while length:
            piece = os.pread(self.descriptor, length, position)
            if not piece:
                raise SourceChangedError("the file is shorter than the broker reports")
            pieces.append(piece)
            length, position = length - len(piece), position + len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class SourceFolder:
    """The open folder of one partition, which keeps its content when the broker renames it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @contextmanager
    def open(self, *names: str) -> Iterator[SourceFile]:
        """Open the file that has one of these names. Raises SourceChangedError, OSError."""
        descriptor = self._open(names)
        try:
            status = os.fstat(descriptor)
            yield SourceFile(descriptor, status.st_size, status.st_ino, status.st_ctime_ns)
        finally:
            os.close(descriptor)

    def _open(self, names: tuple[str, ...]) -> int:
        for _ in range(ATTEMPTS):
            for name in names:
                with suppress(FileNotFoundError):
                    return os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._descriptor)
        raise SourceChangedError(f"there is no file {names[0]}")

    def read(self, name: str) -> bytes | None:
        """Return the content of a small file; None if it does not exist. Raises OSError."""
        try:
            with self.open(name) as file:
                return os.pread(file.descriptor, file.size, 0)
        except SourceChangedError:
            return None

    def names(self) -> list[str]:
        """Return the names of all files. Raises OSError."""
        with os.scandir(self._descriptor) as entries:
            return [entry.name for entry in entries]


@contextmanager
def partition_folder(log_dir: str, partition: Mapping[str, Any]) -> Iterator[SourceFolder]:
    """Open the folder of a partition with the same topic id, also after a deletion has renamed it.

    Raises SourceChangedError, OSError.
    """
    descriptor = _find_folder(log_dir, partition)
    try:
        yield SourceFolder(descriptor)
    finally:
        os.close(descriptor)


def _find_folder(log_dir: str, partition: Mapping[str, Any]) -> int:
    name = f"{partition['topic']}-{partition['partition']}"
    for _ in range(ATTEMPTS):
        # The log directory is listed only if the plain name has another topic: it may have ten thousand entries.
        for folder in chain([name], _deleted_folders(log_dir, partition)):
            try:
                descriptor = os.open(f"{log_dir}/{folder}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            if _topic_id(SourceFolder(descriptor)) == partition["topic_id"]:
                return descriptor
            os.close(descriptor)  # a new topic with the same name
    raise SourceChangedError(f"there is no folder {log_dir}/{name}")


def _deleted_folders(log_dir: str, partition: Mapping[str, Any]) -> Iterator[str]:
    """Yield the folders that a deletion of the topic may have renamed. Long topic names are truncated in them."""
    with os.scandir(log_dir) as entries:
        folders = [entry.name for entry in entries]
    for folder in folders:
        match = _DELETED_FOLDER.fullmatch(folder)
        if (
            match
            and int(match["partition"]) == partition["partition"]
            and partition["topic"].startswith(match["topic"])
        ):
            yield folder


def _topic_id(folder: SourceFolder) -> str | None:
    content = folder.read("partition.metadata") or b""
    match = re.search(rb"^topic_id: *(\S{22})\s*$", content, re.MULTILINE)
    return None if match is None else match[1].decode("ascii", "replace")
