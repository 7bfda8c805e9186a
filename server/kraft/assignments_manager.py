"""Kafka's AssignmentsManager: reports the log directories of replicas to the controller (KIP-858)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING
from uuid import UUID

from ...common.room_logger import room_logger
from ...protocol.errors import KafkaError, ProtocolError, code_of
from ...protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)
from ...protocol.topic_partition import TopicIdPartition, TopicPartition
from ..runtime.loop_sharing import CountBudget
from .image_features import METADATA_VERSION
from .image_topics import LOST_DIRECTORY

if TYPE_CHECKING:
    from ...storage.errors import StorageError
    from ...storage.held_logs import HeldLogs
    from ...storage.log_dir import LogDir
    from ..controller.forwarding_manager import SendToController
    from ..image.topics_image import TopicsImage
    from .image_features import ImageFeatures
    from .published_image import PublishedImage

logger = room_logger("replication")

SINCE_DIRECTORIES = 17
"""metadata.version 3.7-IV2."""
MAX_ASSIGNMENTS_PER_REQUEST = 2250
"""Kafka's limit, which keeps the records of one request in one batch."""


class AssignmentsManager:
    """Compares the directories of this broker's replicas with the metadata, and reports differences.

    With this knowledge the controller elects other leaders when a log directory fails. The controller itself assigns
    only new replicas of a broker with a single directory, so a single directory that was replaced is reported, too.

    A log that has failed alone, in a directory that is online, is reported as lost: the controller elects another
    leader, and a restart that can open the log reports its directory again. Kafka's brokers fail the whole directory
    instead. `KRaftMember` owns it; it runs on the loop's thread.
    """

    def __init__(
        self,
        broker_id: int,
        published: PublishedImage,
        features: ImageFeatures,
        directory_ids: Mapping[str, UUID],
        *,
        held: HeldLogs,
        broker_epoch: Callable[[], int],
        send_request: SendToController,
    ) -> None:
        """`directory_ids` has the ids of the log directories by path."""
        self._broker_id = broker_id
        self._published = published
        self._features = features
        self._directory_ids = directory_ids
        self._held = held
        self._broker_epoch = broker_epoch
        self._send_request = send_request
        self._agreeing: tuple[TopicsImage, dict[TopicPartition, LogDir], dict[TopicPartition, StorageError]] | None = (
            None
        )
        """The topics, directories and offline replicas of the last comparison if all agreed; otherwise None."""

    async def check(self) -> None:
        """Report the replicas in other directories than the metadata state. Failures are repeated by the next call.

        A comparison of ten thousand replicas takes 20 ms, and is omitted if nothing has changed since all agreed.
        """
        if self._features.level(METADATA_VERSION) < SINCE_DIRECTORIES:
            return
        present = self._published.image.topics, dict(self._held.dir_of), dict(self._held.offline)
        if self._agreeing is not None and self._agreeing[0] is present[0] and self._agreeing[1:] == present[1:]:
            return
        found: dict[TopicIdPartition, UUID] = {}
        budget, topics = CountBudget(), present[0]
        for (name, index), log_dir in present[1].items():
            await budget.step()
            topic_id = topics.ids.get(name)
            partition = None if topic_id is None else topics.partition(topic_id, index)
            if topic_id is None or partition is None:
                continue
            stated, directory = partition.directory(self._broker_id), self._directory_ids.get(log_dir.path)
            if stated is None or directory is None:
                continue
            if log_dir.is_online and TopicPartition(name, index) in self._held.offline:
                directory = LOST_DIRECTORY
            if directory != stated:
                found[TopicIdPartition(topic_id, name, index)] = directory
        self._agreeing = None if found else present
        remaining = iter(found.items())
        while some := list(islice(remaining, MAX_ASSIGNMENTS_PER_REQUEST)):
            await self._report(some)

    async def _report(self, assignments: list[tuple[TopicIdPartition, UUID]]) -> None:
        request = AssignReplicasToDirsRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            directories=list(_directories(assignments)),
        )
        try:
            response = await self._send_request(request)
        except (KafkaError, ProtocolError) as error:
            logger.warning("the controller does not accept the log directories of replicas: %s", error)
            return
        refused = [
            f"{topic.topic_id}-{one.partition_index}: {code_of(one.error_code).name}"
            for directory in response.directories
            for topic in directory.topics
            for one in topic.partitions
            if one.error_code
        ]
        logger.info("reported the log directories of %d replicas", len(assignments) - len(refused))
        if refused:
            logger.warning("%d log directories of replicas were rejected, for example of %s", len(refused), refused[0])


def _directories(assignments: Iterable[tuple[TopicIdPartition, UUID]]) -> Iterator[DirectoryData]:
    topics: dict[UUID, dict[UUID, TopicData]] = {}
    for key, directory in assignments:
        of_directory = topics.setdefault(directory, {})
        topic = of_directory.setdefault(key.topic_id, TopicData(topic_id=key.topic_id))
        topic.partitions.append(PartitionData(partition_index=key.partition))
    for directory, of_directory in topics.items():
        yield DirectoryData(id=directory, topics=list(of_directory.values()))
