"""Descriptions of log directories: their replicas, future replicas, and free space (Kafka's describeLogDirs)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ...protocol.topic_partition import TopicPartition
from ..runtime.loop_sharing import Steps

if TYPE_CHECKING:
    from ...storage.filesystem import FileSystem
    from ...storage.log_manager import LogManager

UNKNOWN_BYTES = -1


class DescribedReplica(NamedTuple):
    """A replica in a log directory."""

    topic_partition: TopicPartition
    size: int
    offset_lag: int
    """The offsets that a replica lacks to its high watermark, or a future replica to the log that it will replace."""
    is_future: bool = False
    """Whether it is a future replica."""


class DescribedLogDir(NamedTuple):
    """A log directory with the requested replicas, by topic and partition."""

    path: str
    replicas: list[DescribedReplica]
    is_online: bool = True
    """Failed log directories are described without replicas."""
    total_bytes: int = UNKNOWN_BYTES
    """The size of its volume."""
    usable_bytes: int = UNKNOWN_BYTES
    is_cordoned: bool = False
    """Whether it gets no new partitions (KIP-1066)."""


def describe_log_dirs(
    log_manager: LogManager, filesystem: FileSystem, wanted: Iterable[tuple[str, Iterable[int]]] | None
) -> Steps[list[DescribedLogDir]]:
    """Describe each log directory with the `wanted` partitions, or with all, one partition per step.

    Kafka's ReplicaManager.describeLogDirs.
    """
    named = yield from (_all(log_manager) if wanted is None else _named(wanted))
    found: dict[str, list[DescribedReplica]] = {}
    for topic in sorted(named):
        for index in sorted(named[topic]):
            for path, replica in _replicas(TopicPartition(topic, index), log_manager):
                found.setdefault(path, []).append(replica)
            yield
    return [
        _online(log_dir.path, found.get(log_dir.path, []), filesystem)._replace(
            is_cordoned=log_manager.held.is_cordoned(log_dir.path)
        )
        if log_dir.is_online
        else DescribedLogDir(log_dir.path, [], is_online=False)
        for log_dir in log_manager.dirs
    ]


def _all(log_manager: LogManager) -> Steps[dict[str, set[int]]]:
    named: dict[str, set[int]] = {}
    for topic, index in list(log_manager.logs):  # partitions may be added between the steps
        named.setdefault(topic, set()).add(index)
        yield
    return named


def _named(wanted: Iterable[tuple[str, Iterable[int]]]) -> Steps[dict[str, set[int]]]:
    named: dict[str, set[int]] = {}
    for topic, indexes in wanted:
        named.setdefault(topic, set()).update(indexes)
        yield
    return named


def _replicas(partition: TopicPartition, log_manager: LogManager) -> Iterable[tuple[str, DescribedReplica]]:
    """Yield the replica of a partition and its future replica, each with its directory."""
    log, directory = log_manager.logs.get(partition), log_manager.log_dir_of(partition)
    if log is None:
        return
    if directory is not None:
        # A follower may be below its high watermark, a leader never is.
        lag = max(0, log.high_watermark - log.log_end_offset)
        yield directory, DescribedReplica(partition, log.size, lag)
    copy = log_manager.future_logs.copies.get(partition)
    if copy is not None and copy.log is not None:
        lag = max(0, log.log_end_offset - copy.log.log_end_offset)
        yield copy.log_dir.path, DescribedReplica(partition, copy.log.size, lag, is_future=True)


def _online(path: str, replicas: list[DescribedReplica], filesystem: FileSystem) -> DescribedLogDir:
    try:
        total, usable = filesystem.total_bytes(path), filesystem.free_bytes(path)
    except OSError:
        total = usable = UNKNOWN_BYTES
    return DescribedLogDir(path, replicas, total_bytes=total, usable_bytes=usable)
