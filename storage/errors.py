"""Failures of the storage room that are not answers on the wire."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from ..protocol.errors import ErrorCode, KafkaError, ProtocolError
from ..protocol.in_words import in_words

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
NO_HANDLE = (errno.EMFILE, errno.ENFILE)
PASSING = NO_SPACE + NO_HANDLE
"""Errors that say nothing about a disk's health: nothing was written, and the next attempt may succeed."""


class StorageError(Exception):
    """Parent of what storage raises beside `KafkaError`."""


class CorruptIndexError(StorageError):
    """An index contradicts its log or itself. It is rebuilt from the log; nothing is lost."""


class CorruptCheckpointError(StorageError):
    """A checkpoint or metadata file cannot be parsed. Says which file and which line."""


class CorruptSegmentError(StorageError):
    """Bytes inside the trusted part of a segment are no record batch; they are never given to a reader."""


class LogDirFailedError(StorageError):
    """The disk under a log directory failed, so nothing in it may be trusted or written until restart.

    After a failed fsync the page cache may differ from the disk while claiming to be clean, so there is no retry.
    """

    def __init__(self, path: str, cause: OSError) -> None:
        super().__init__(f"{path}: {in_words(cause)}")
        self.path = path
        self.cause = cause


class FlushPostponedError(OSError):
    """A flush lacked space or handles, and no sync failed: running it again may succeed."""


@contextmanager
def failing_dir(directory: str) -> Iterator[None]:
    """An `OSError` inside means that the log directory has failed: raises `LogDirFailedError`."""
    try:
        yield
    except OSError as error:
        raise LogDirFailedError(directory, error) from error


@contextmanager
def failing_read(directory: str) -> Iterator[None]:
    """Errors inside, of which nothing but reading is at fault, become what `read_failure` says."""
    try:
        yield
    except (OSError, ProtocolError, CorruptSegmentError) as error:
        raise read_failure(directory, error) from error


def read_failure(directory: str, error: Exception) -> Exception:
    """What a failed read means.

    CORRUPT_MESSAGE for bytes that are no records, which condemn themselves and nothing else; KAFKA_STORAGE_ERROR when
    the process has too many open files, which passes; else `LogDirFailedError`.
    """
    if not isinstance(error, OSError):
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error))
    if error.errno in NO_HANDLE:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory}: {error}")
    return LogDirFailedError(directory, error)


@contextmanager
def failing_write(directory: str) -> Iterator[None]:
    """An `OSError` inside, which leaves all as it was before, becomes what `write_failure` says."""
    try:
        yield
    except OSError as error:
        raise write_failure(directory, error) from error


def write_failure(directory: str, error: OSError) -> Exception:
    """What a failed append means: KAFKA_STORAGE_ERROR for what may pass, a full disk say, or `LogDirFailedError`."""
    if error.errno in NO_SPACE:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"no space is left in {directory}: {error}")
    if error.errno in NO_HANDLE:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory}: {error}")
    return LogDirFailedError(directory, error)
