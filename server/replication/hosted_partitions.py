"""The replicas of this broker by name, and what a failing disk means for work on one of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.room_logger import room_logger
from ...protocol.topic_partition import TopicPartition
from ...storage.errors import LogDirFailedError
from ...storage.held_logs import AllLogDirsFailedError
from ..runtime.log_limit import LimitedLog

if TYPE_CHECKING:
    from ...storage.log_manager import LogManager
    from ..metadata.metadata_cache import MetadataCache
    from .partition import Partition

logger = room_logger("replication")


class HostedPartitions:
    """Loop-thread only."""

    def __init__(self, log_manager: LogManager, metadata: MetadataCache, time: Callable[[], float]) -> None:
        """`time` is that of the loop, in seconds."""
        self.by_name: dict[tuple[str, int], Partition] = {}
        """For those on the way of each request; only `add` and `remove` change it."""
        self._by_topic: dict[str, dict[TopicPartition, Partition]] = {}
        self.failures = 0
        """How often a partition was not served because of a mistake of the broker's."""
        self._mistakes = LimitedLog(logger, time)
        """One request may have the same go wrong in thousands of partitions."""
        self._log_manager = log_manager
        self._metadata = metadata

    def add(self, partition: Partition) -> None:
        """There is a replica more."""
        name = partition.topic_partition
        self.by_name[name] = partition
        self._by_topic.setdefault(name.topic, {})[name] = partition

    def remove(self, name: TopicPartition) -> Partition | None:
        """There is a replica less, if there was this one."""
        partition = self.by_name.pop(name, None)
        if partition is not None:
            others = self._by_topic[name.topic]
            del others[name]
            if not others:
                del self._by_topic[name.topic]
        return partition

    def topics(self) -> list[str]:
        """Those that have replicas here."""
        return list(self._by_topic)

    def of(self, topic: str) -> Iterable[Partition]:
        """The replicas of a topic, without a look at those of others."""
        return self._by_topic.get(topic, {}).values()

    def find(self, topic: str, index: int) -> Partition | None:
        """The replica here, whatever its role."""
        return self.by_name.get((topic, index))

    def led(self, topic: str, index: int) -> Partition:
        """The replica that this broker leads.

        Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """
        partition = self.by_name.get((topic, index))
        if partition is None or not partition.is_leader or partition.is_offline:
            raise self.not_led(topic, index)
        return partition

    def not_led(self, topic: str, index: int) -> KafkaError:
        """Why a partition cannot be served here."""
        partition = self.by_name.get((topic, index))
        if partition is not None and partition.is_offline:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {topic}-{index} has failed")
        if partition is not None:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {topic}-{index}")
        if self._metadata.partition(TopicPartition(topic, index)) is not None:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} has no replica on this broker")
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")

    def log_dir_failed(self, directory: str, error: BaseException) -> None:
        """A log directory cannot be written or read any more: have it taken offline, for good."""
        with suppress(AllLogDirsFailedError):
            self._log_manager.held.fail_log_dir(directory, error if isinstance(error, OSError) else None)

    @contextmanager
    def answering(self, topic: str, index: int) -> Iterator[None]:
        """Work on one partition for somebody who asks about several: raises KafkaError, whatever happens there."""
        try:
            yield
        except KafkaError:
            raise
        except Exception as error:
            raise self.answer_to(error, topic, index) from error

    def answer_to(self, error: Exception, topic: str, index: int) -> KafkaError:
        """What to answer for one partition that could not be written or read, whatever happened there: others may have
        been. Kafka's ReplicaManager.appendToLocalLog and readFromLog.
        """
        if isinstance(error, KafkaError):
            return error
        if isinstance(error, LogDirFailedError):
            return self.storage_error(error)
        self.failures += 1
        self._mistakes.write(logging.ERROR, "%s-%d could not be served", topic, index, error=error)
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed to serve the partition")

    def storage_error(self, error: LogDirFailedError) -> KafkaError:
        """A disk failed while a partition was served: fail its directory, and say what to answer."""
        self.log_dir_failed(error.path, error.cause)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
