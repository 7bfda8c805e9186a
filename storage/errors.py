"""Failures of the storage room that are not answers on the wire."""

import errno
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from ..common.error_description import describe_error
from ..common.room_logger import room_logger
from ..protocol.errors import ErrorCode, KafkaError, ProtocolError
from ..protocol.topic_partition import TopicPartition

logger = room_logger("storage")

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
NO_HANDLE = (errno.EMFILE, errno.ENFILE)
PASSING = NO_SPACE + NO_HANDLE
"""Errors that say nothing about a disk's health: nothing was written, and the next attempt may succeed."""
FILE_ERRORS = (
    errno.ENOENT,
    errno.EEXIST,
    errno.EACCES,
    errno.EPERM,
    errno.ELOOP,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ENOTEMPTY,
    errno.ENXIO,
    errno.ESPIPE,
    errno.ENAMETOOLONG,
)
"""Errors about one file or its name: it was deleted, replaced by something else, or belongs to another user."""


class StorageError(Exception):
    """Parent of the errors of this package that are not `KafkaError`."""


class CorruptIndexError(StorageError):
    """An index contradicts its log or itself. It is rebuilt from the log; nothing is lost."""


class CorruptCheckpointError(StorageError):
    """A checkpoint or metadata file cannot be parsed. The message contains the file and the line."""


class CorruptSegmentError(StorageError):
    """Bytes inside the trusted part of a segment are not a record batch; readers never receive them."""


class IndexRebuildingError(CorruptSegmentError):
    """An index of a segment is damaged and is being rebuilt: the same request succeeds some time later."""


class LogDirFailedError(StorageError):
    """The disk under a log directory failed, so nothing in it may be trusted or written until restart.

    After a failed fsync the page cache may differ from the disk while claiming to be clean, so there is no retry.
    """

    def __init__(self, path: str, cause: OSError) -> None:
        super().__init__(f"{path}: {describe_error(cause)}")
        self.path = path
        self.cause = cause


class LogFailedError(LogDirFailedError):
    """The files of one log cannot be written, but the files of other logs can: the log is offline until restart.

    A file was deleted, replaced by a directory or given to another user while the broker ran. `path` is the path of
    the log directory, because the directory itself may be affected too (`HeldLogs.fail` checks this).
    """

    def __init__(self, topic_partition: TopicPartition, path: str, cause: OSError) -> None:
        super().__init__(path, cause)
        self.topic_partition = topic_partition


class InvariantViolationError(LogFailedError):
    """The state of a partition contradicts itself, a bug in the broker: it is offline until a restart.

    No request is served from a state that is known to be wrong. The restart reads the state from disk again.
    """

    def __init__(self, topic_partition: TopicPartition, path: str, violation: str) -> None:
        super().__init__(topic_partition, path, OSError(f"{topic_partition} violates an invariant: {violation}"))


class NoSpaceError(KafkaError):
    """KAFKA_STORAGE_ERROR of an operation that failed because a log directory is full, or the quota of its disk is.

    `directory` is the path of the log directory. Nothing was written, and the operation may succeed later.
    """

    def __init__(self, directory: str, error: OSError) -> None:
        reason = error.strerror or str(error)
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"no space is left in log directory {directory}: {reason}")
        self.directory = directory


class FlushPostponedError(OSError):
    """A flush lacked space or handles, and no sync failed: running it again may succeed."""


class _DamageLog:
    """Log lines about damaged files, each once while it is among the newest: clients repeat a failed request.

    Used by any thread: two may log the same line, and nothing else can go wrong.
    """

    REMEMBERED = 64

    def __init__(self) -> None:
        self._newest: deque[str] = deque(maxlen=self.REMEMBERED)

    def warn(self, line: str) -> None:
        if line not in self._newest:
            self._newest.append(line)
            logger.warning("a file is damaged or missing: %s", line)


_damage = _DamageLog()


def log_failure(topic_partition: TopicPartition, directory: str, error: OSError) -> LogDirFailedError:
    """Return the error for a failed write: `LogFailedError` if the files of one log are at fault, else
    `LogDirFailedError`.
    """
    if error.errno in FILE_ERRORS:
        return LogFailedError(topic_partition, directory, error)
    return LogDirFailedError(directory, error)


@contextmanager
def failing_dir(directory: str, topic_partition: TopicPartition | None = None) -> Iterator[None]:
    """Convert an `OSError` inside to the result of `log_failure`, or to `LogDirFailedError` without a partition."""
    try:
        yield
    except OSError as error:
        if topic_partition is None:
            raise LogDirFailedError(directory, error) from error
        raise log_failure(topic_partition, directory, error) from error


def is_passing(error: Exception) -> bool:
    """Return whether a failed write may succeed later: the disk is full, or the process has too many open files."""
    cause = error.__cause__ if isinstance(error, KafkaError) else getattr(error, "cause", None)
    return isinstance(cause, OSError) and cause.errno in PASSING


@contextmanager
def failing_read(directory: str) -> Iterator[None]:
    """Convert errors of a read inside to the result of `read_failure`."""
    try:
        yield
    except (OSError, ProtocolError, CorruptSegmentError, CorruptIndexError) as error:
        raise read_failure(directory, error) from error


def read_failure(directory: str, error: Exception) -> Exception:
    """Return the error for a failed read.

    CORRUPT_MESSAGE for bytes that are not records, which affects only these bytes. KAFKA_STORAGE_ERROR if the process
    has too many open files, which is temporary, and for an index or a file that is missing or unreadable, which affects
    one segment. Otherwise `LogDirFailedError`.
    """
    if isinstance(error, CorruptIndexError):  # of transactions: the next start rebuilds it
        return _one_file(error)
    if isinstance(error, IndexRebuildingError):
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))  # clients try again after this error
    if not isinstance(error, OSError):
        failure = KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error))
        _damage.warn(str(error))
        return failure
    if error.errno in NO_HANDLE:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory}: {error}")
    if error.errno in FILE_ERRORS:
        return _one_file(error)
    return LogDirFailedError(directory, error)


def _one_file(error: Exception) -> KafkaError:
    """Return the error for a failure that affects one file, which the message names."""
    _damage.warn(describe_error(error))
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))


@contextmanager
def failing_write(topic_partition: TopicPartition, directory: str) -> Iterator[None]:
    """Convert an `OSError` inside, which leaves the log unchanged, to the result of `write_failure`."""
    try:
        yield
    except OSError as error:
        raise write_failure(topic_partition, directory, error) from error


def write_failure(topic_partition: TopicPartition, directory: str, error: OSError) -> Exception:
    """Return the error for a failed append: KAFKA_STORAGE_ERROR if it may be temporary (a full disk), else
    `log_failure`.
    """
    if error.errno in NO_SPACE:
        return NoSpaceError(directory, error)
    if error.errno in NO_HANDLE:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory}: {error}")
    return log_failure(topic_partition, directory, error)
