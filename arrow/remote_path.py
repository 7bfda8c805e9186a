"""Files in object stores and other file systems of fsspec, with the methods of `pathlib.Path` that readers use."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

_READ_AHEAD_BYTES = 4 << 20


class FileStatus(NamedTuple):
    """The part of `os.stat_result` that readers use."""

    st_size: int


class RemotePath:
    """A path of an fsspec file system, such as `s3://bucket/logs/flights-0`."""

    def __init__(self, files: Any, path: str) -> None:
        self._files = files
        self._path = path.rstrip("/")

    def __str__(self) -> str:
        return str(self._files.unstrip_protocol(self._path))

    def __lt__(self, other: RemotePath) -> bool:
        return self._path < other._path

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and self._path == other._path

    def __hash__(self) -> int:
        return hash(self._path)

    @property
    def name(self) -> str:
        return self._path.rpartition("/")[2]

    @property
    def stem(self) -> str:
        return self.name.rpartition(".")[0] or self.name

    def with_suffix(self, suffix: str) -> RemotePath:
        return RemotePath(self._files, self._path.removesuffix(self.name) + self.stem + suffix)

    def iterdir(self) -> Iterator[RemotePath]:
        for path in self._files.ls(self._path, detail=False):
            if path.rstrip("/") != self._path:
                yield RemotePath(self._files, path)

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        return (path for path in self.iterdir() if fnmatchcase(path.name, pattern))

    def is_dir(self) -> bool:
        return bool(self._files.isdir(self._path))

    def is_file(self) -> bool:
        return bool(self._files.isfile(self._path))

    def stat(self) -> FileStatus:
        return FileStatus(int(self._files.size(self._path)))

    def read_bytes(self) -> bytes:
        return bytes(self._files.cat_file(self._path))

    def open(self, mode: str, buffering: int = -1) -> Any:
        """Open for reading; blocks are read ahead, since each request to a store takes some milliseconds."""
        return self._files.open(self._path, mode, block_size=_READ_AHEAD_BYTES)


AnyPath: TypeAlias = Path | RemotePath


def path_of(text: str) -> AnyPath:
    """Return a path, of fsspec for a URL. Raises ModuleNotFoundError without fsspec, ValueError for an unknown one."""
    if "://" not in text:
        return Path(text)
    return RemotePath(*_opened(text))


def expand(pattern: str) -> list[AnyPath]:
    """Return the paths that a URL with `*` matches, in order. Raises as `path_of`."""
    files, path = _opened(pattern)
    found = files.glob(path) if "*" in path else [path]
    return [RemotePath(files, each) for each in sorted(found)]


def _opened(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, with the settings of fsspec's configuration, and the path in it."""
    if "::" in url:
        # The tasks of Spark open files by the URL that the file system returns, which has the last part only.
        raise ValueError(f"{url}: URLs that combine file systems with :: are not supported")
    try:
        core = import_module("fsspec").core
    except ModuleNotFoundError:
        raise ModuleNotFoundError("a URL requires fsspec: pip install fsspec", name="fsspec") from None
    try:
        files, path = core.url_to_fs(url)
    except ImportError as error:  # the package of a protocol is not installed
        raise ModuleNotFoundError(f"{url}: {error}", name=getattr(error, "name", None)) from None
    return files, path
