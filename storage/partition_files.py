"""The files of a log in a partition's folder. All other files are foreign and remain untouched."""

import re
from collections.abc import Collection

from ..common.room_logger import room_logger
from .errors import StorageError
from .filesystem import FileSystem, parent_of
from .leader_epochs import FILE_NAME as EPOCHS_FILE_NAME
from .partition_metadata import FILE_NAME as METADATA_FILE_NAME
from .segment_files import LOG_SUFFIX, TXN_INDEX_SUFFIX

TEMPORARY_SUFFIX = ".tmp"
FOREIGN_SUFFIX = ".foreign"
REPLACING_FILE = "replacing"
"""Exists in a copy from just before it gets the log's name until the log's folder has another name."""

_MAX_OFFSET = 2**63 - 1
_SINGLE_NAMES = (EPOCHS_FILE_NAME, METADATA_FILE_NAME, REPLACING_FILE)
_OTHER_NAMES = frozenset(name + suffix for name in _SINGLE_NAMES for suffix in ("", TEMPORARY_SUFFIX))
_OF_A_SEGMENT = re.compile(
    r"(?P<base>[0-9]{20})\.(log|index|timeindex|txnindex|snapshot)(\.(cleaned|swap|deleted|tmp))?"
)

logger = room_logger("storage")


class NotAFileError(StorageError):
    """A directory, for example, has the name of a log's file, so the records of that file are missing."""


def is_log_file(name: str) -> bool:
    """Return whether the name is reserved for a log: `<20 digits>.log` or similar, or one of the single names."""
    match = _OF_A_SEGMENT.fullmatch(name)
    return name in _OTHER_NAMES if match is None else int(match["base"]) <= _MAX_OFFSET


def log_files(fs: FileSystem, path: str) -> list[str]:
    """Return the names of a log's files in its folder. Raises `OSError`, `NotAFileError`.

    A directory or link with such a name is renamed. Nothing can replace a file of records; for a transaction index the
    name is returned, so that the index is rebuilt.
    """
    found = fs.scan_dir(path)
    names = [name for name in found if is_log_file(name)]
    odd = [name for name in names if not found[name]]
    for name in odd:
        if name.endswith(LOG_SUFFIX):
            raise NotAFileError(f"{path}/{name}: not a regular file")
    set_aside(fs, path, [name for name in odd if not name.endswith(TXN_INDEX_SUFFIX)])
    return [name for name in names if found[name] or name.endswith(TXN_INDEX_SUFFIX)]


def set_aside(fs: FileSystem, path: str, names: Collection[str]) -> None:
    """Rename directory entries with the names of log files. Raises `OSError`."""
    for name in names:
        logger.warning("%s/%s is not a regular file; renamed to %s%s", path, name, name, FOREIGN_SUFFIX)
        fs.rename(f"{path}/{name}", f"{path}/{name}{FOREIGN_SUFFIX}")


def clear_name(fs: FileSystem, path: str) -> None:
    """Free the name `path` for a new file: unlink a file, rename anything else. Raises `OSError`."""
    if fs.is_dir(path):
        set_aside(fs, parent_of(path), [path.rpartition("/")[2]])
    else:
        fs.unlink(path)


def holds_log(fs: FileSystem, path: str) -> bool:
    """Return whether the folder contains a log: a segment, or a `partition.metadata`. Raises `OSError`."""
    return any(
        name == METADATA_FILE_NAME or (name.endswith(LOG_SUFFIX) and is_log_file(name)) for name in fs.list_dir(path)
    )


def remove_log(fs: FileSystem, path: str) -> None:
    """Remove a log's folder, not durably yet; a missing folder is not an error. Raises `OSError`.

    A folder with foreign files is kept, with these files.
    """
    if not fs.is_dir(path):
        return
    found = fs.scan_dir(path)
    ours = [name for name, is_file in found.items() if is_file and is_log_file(name)]
    for name in ours:
        fs.unlink(f"{path}/{name}")
    if len(ours) < len(found):
        others = ", ".join(sorted(found.keys() - set(ours))[:3])
        logger.warning("%s: kept, because it contains files that do not belong to a log: %s", path, others)
        return
    try:
        fs.rmdir(path)
    except NotADirectoryError:
        # A link to a folder somewhere else.
        fs.unlink(path)
