"""Which files of a partition's folder are a log's. Whatever else lies there is somebody else's, and is left alone."""

import re
from collections.abc import Collection

from ..protocol.room_logger import room_logger
from .errors import StorageError
from .filesystem import FileSystem
from .leader_epochs import FILE_NAME as EPOCHS_FILE_NAME
from .partition_metadata import FILE_NAME as METADATA_FILE_NAME
from .segment_files import LOG_SUFFIX, TXN_INDEX_SUFFIX

TEMPORARY_SUFFIX = ".tmp"
FOREIGN_SUFFIX = ".foreign"
REPLACING_FILE = "replacing"
"""Lies in a copy from just before it gets the log's name until the log's folder has lost it."""

_MAX_OFFSET = 2**63 - 1
_SINGLE_NAMES = (EPOCHS_FILE_NAME, METADATA_FILE_NAME, REPLACING_FILE)
_OTHER_NAMES = frozenset(name + suffix for name in _SINGLE_NAMES for suffix in ("", TEMPORARY_SUFFIX))
_OF_A_SEGMENT = re.compile(
    r"(?P<base>[0-9]{20})\.(log|index|timeindex|txnindex|snapshot)(\.(cleaned|swap|deleted|tmp))?"
)

logger = room_logger("storage")


class NoFileError(StorageError):
    """What has the name of a log's file is a directory, say. What it should hold is not there."""


def is_log_file(name: str) -> bool:
    """Whether only a log's file is called so: `<20 digits>.log` and its like, or one of the few single names."""
    match = _OF_A_SEGMENT.fullmatch(name)
    return name in _OTHER_NAMES if match is None else int(match["base"]) <= _MAX_OFFSET


def log_files(fs: FileSystem, path: str) -> list[str]:
    """The names of a log's files in its folder. Raises `OSError`, `NoFileError`.

    What has such a name and is no file is in the way, and gets another name. Only what should hold records, or which
    of them were aborted, has no substitute.
    """
    found = fs.scan_dir(path)
    names = [name for name in found if is_log_file(name)]
    odd = [name for name in names if not found[name]]
    for name in odd:
        if name.endswith((LOG_SUFFIX, TXN_INDEX_SUFFIX)):
            raise NoFileError(f"{path}/{name} is no file")
    set_aside(fs, path, odd)
    return [name for name in names if found[name]]


def set_aside(fs: FileSystem, path: str, names: Collection[str]) -> None:
    """Gives what is in the way another name. Raises `OSError`."""
    for name in names:
        logger.warning("%s/%s is no file; it is called %s%s now", path, name, name, FOREIGN_SUFFIX)
        fs.rename(f"{path}/{name}", f"{path}/{name}{FOREIGN_SUFFIX}")


def holds_log(fs: FileSystem, path: str) -> bool:
    """Whether a log is in the folder: a segment, or the note whose it is. Raises `OSError`."""
    return any(
        name == METADATA_FILE_NAME or (name.endswith(LOG_SUFFIX) and is_log_file(name)) for name in fs.list_dir(path)
    )


def remove_log(fs: FileSystem, path: str) -> None:
    """Removes a log's folder, not durably yet; a missing one is fine. Raises `OSError`.

    A folder that holds something else as well stays, with that in it.
    """
    if not fs.is_dir(path):
        return
    found = fs.scan_dir(path)
    ours = [name for name, is_file in found.items() if is_file and is_log_file(name)]
    for name in ours:
        fs.unlink(f"{path}/{name}")
    if len(ours) < len(found):
        others = ", ".join(sorted(found.keys() - set(ours))[:3])
        logger.warning("%s stays, as not all in it is of a log: %s", path, others)
        return
    try:
        fs.rmdir(path)
    except NotADirectoryError:
        # A link to a folder somewhere else.
        fs.unlink(path)
