"""The target of backups: a folder on this machine, or a folder on another machine or in an object store by fsspec.

Layout of a target:

    backups/<id>.json        one manifest for each backup, written last
    objects/ab/ab12….…       content by its SHA-256, shared by backups
    temporary/               files that are not complete; removed by the next backup
    lock                     locked by a backup in progress; folders only
"""

from __future__ import annotations

import fcntl
import os
import posixpath
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

BACKUPS, OBJECTS, TEMPORARY = "backups", "objects", "temporary"
LOCK_FILE = "lock"
PRIVATE = 0o600
"""The mode of all files, because a backup has all records and the credentials of users."""
OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss"}
"""Protocols of fsspec for stores without folders."""


class BackupError(Exception):
    """A failure of a backup or a restore, described in one line for the user."""


class FolderTarget:
    """A folder of this machine. Files are complete and synced before they get their names."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)

    def read(self, name: str) -> bytes:
        """Return the content of a file. Raises OSError."""
        return (self.path / name).read_bytes()

    def read_back(self, name: str) -> bytes:
        """Return the content of a file that was just written, if possible from the disk. Raises OSError."""
        with (self.path / name).open("rb") as file:
            if hasattr(os, "posix_fadvise"):  # so that the read is from the disk: the pages are synced
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            content = file.read()
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return content

    def write(self, name: str, content: bytes) -> None:
        """Write a file durably: the whole file or, after an error or a crash, none. Raises OSError."""
        path, temporary = self.path / name, self.path / TEMPORARY / f"{os.getpid()}-{posixpath.basename(name)}"
        if not path.parent.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _sync_folder(path.parent.parent)
        try:
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException as error:
            with suppress(OSError):
                temporary.unlink()
            if isinstance(error, OSError) and error.filename is None:
                error.filename = str(path)  # the error of a full disk has no path
            raise
        _sync_folder(path.parent)

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the files below a folder with their sizes, by their names in the target. Raises OSError."""

        def fail(error: OSError) -> None:
            # A directory that cannot be listed is not an empty one: the objects of its backups would be deleted.
            if not isinstance(error, FileNotFoundError):
                raise error

        found = {}
        for parent, _, names in os.walk(self.path / folder, onerror=fail):
            for name in names:
                path = Path(parent, name)
                with suppress(FileNotFoundError):
                    found[path.relative_to(self.path).as_posix()] = path.stat().st_size
        return found

    def delete(self, name: str) -> None:
        """Delete a file. Raises OSError."""
        (self.path / name).unlink(missing_ok=True)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Prepare the folder for one writer, and remove unfinished files. Raises BackupError for a second writer."""
        self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT, PRIVATE)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BackupError(f"{self.name}: another backup is in progress there") from None
            for folder in (TEMPORARY, BACKUPS, OBJECTS):
                (self.path / folder).mkdir(exist_ok=True)
            for name in self.sizes(TEMPORARY):
                self.delete(name)
            _sync_folder(self.path)
            yield
        finally:
            os.close(descriptor)


class UrlTarget:
    """A folder of a file system of fsspec. There is no lock: the user runs one backup at a time."""

    def __init__(self, url: str) -> None:
        """Raises BackupError if fsspec or the package of the protocol is missing, and errors of that package."""
        try:
            core = import_module("fsspec.core")
        except ImportError:
            raise BackupError(f"{url}: a URL requires fsspec: pip install 'barnabas[backup]'") from None
        try:
            self._files: Any
            self._files, self._root = core.url_to_fs(url)
        except ImportError as error:
            raise BackupError(f"{url}: {error}") from None
        self.name = url

    def read(self, name: str) -> bytes:
        """Return the content of a file. Raises OSError and errors of the protocol."""
        content: bytes = self._files.cat_file(self._path(name))
        return content

    def read_back(self, name: str) -> bytes:
        """Return the content of a file that was just written. Errors as `read`."""
        return self.read(name)

    def write(self, name: str, content: bytes) -> None:
        """Write a file. Raises BackupError, and errors as `read`.

        A manifest is renamed when it is complete. A partial object is recognized by its size, and written again.
        """
        try:
            if name.startswith(BACKUPS):
                temporary = f"{TEMPORARY}/{posixpath.basename(name)}"
                self._put(temporary, content)
                self._make_parent(name)
                self._files.mv(self._path(temporary), self._path(name))
            else:
                self._put(name, content)
        except OSError as error:
            if error.filename is None and error.errno is not None:
                error.filename = f"{self.name}/{name}"
            elif error.errno is None:
                raise BackupError(f"{self.name}/{name}: {error}") from None
            raise

    def _put(self, name: str, content: bytes) -> None:
        self._make_parent(name)
        self._files.pipe_file(self._path(name), content)

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the files below a folder with their sizes, by their names in the target. Errors as `read`."""
        self._files.invalidate_cache()
        root = self._files._strip_protocol(self._path(folder)).rstrip("/")
        try:
            found: Mapping[str, Any] = self._files.find(root, detail=True)
        except FileNotFoundError:
            return {}
        return {f"{folder}/{path[len(root) + 1 :]}": int(info["size"]) for path, info in found.items()}

    def delete(self, name: str) -> None:
        """Delete a file. Errors as `read`."""
        self._files.rm_file(self._path(name))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Remove unfinished files. Errors as `read`."""
        for name in self.sizes(TEMPORARY):
            self.delete(name)
        yield

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _make_parent(self, name: str) -> None:
        """Create the folder of a file, except in an object store, where fsspec would create a bucket instead."""
        protocol = self._files.protocol
        if OBJECT_STORES.isdisjoint([protocol] if isinstance(protocol, str) else protocol):
            self._files.makedirs(posixpath.dirname(self._path(name)), exist_ok=True)


Target = FolderTarget | UrlTarget


def open_target(text: str) -> Target:
    """Return the target that a path or a URL names. Raises BackupError."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return FolderTarget(Path(text).absolute())
    if scheme in ("file", "local"):
        return FolderTarget(Path(f"/{rest.lstrip('/')}"))
    return UrlTarget(text)


def object_name(sha256: str) -> str:
    """Return the name of the object with this content."""
    return f"{OBJECTS}/{sha256[:2]}/{sha256}"


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
