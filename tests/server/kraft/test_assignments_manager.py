"""The log directories of replicas as the broker reports them to the controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from tests.server.image.metadata_history import image_after

from barnabas.protocol import metadata_records as r
from barnabas.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.image.metadata_image import EMPTY_IMAGE
from barnabas.server.kraft.assignments_manager import AssignmentsManager
from barnabas.server.kraft.image_features import ImageFeatures
from barnabas.server.kraft.image_topics import LOST_DIRECTORY
from barnabas.server.kraft.published_image import PublishedImage
from barnabas.storage.errors import LogFailedError
from barnabas.storage.held_logs import HeldLogs

BROKER_ID, OTHER = 2, 1
TOPIC_ID = UUID(int=1000)
FORMER, FIRST, SECOND = (UUID(int=2000 + number) for number in range(3))


class Reports:
    """An AssignmentsManager of a broker with the log directories `/first` and `/second`, and its requests."""

    def __init__(self) -> None:
        self.requests: list[AssignReplicasToDirsRequest] = []
        self.published = PublishedImage()
        self.dirs = {path: SimpleNamespace(path=path, is_online=True) for path in ("/first", "/second")}
        self.held = HeldLogs(cast(Any, list(self.dirs.values())))
        self.manager = AssignmentsManager(
            BROKER_ID,
            self.published,
            ImageFeatures(self.published),
            {"/first": FIRST, "/second": SECOND},
            held=self.held,
            broker_epoch=lambda: 7,
            send_request=cast(Any, self._send),
        )

    async def _send(self, request: AssignReplicasToDirsRequest, **_: int) -> AssignReplicasToDirsResponse:
        self.requests.append(request)
        return AssignReplicasToDirsResponse(directories=[])

    async def begin(self, stated: Sequence[UUID], places: Mapping[int, str]) -> None:
        """Set the directories of partitions in the metadata, and those with the logs."""
        level = r.FeatureLevelRecord(name="metadata.version", feature_level=33)
        partitions = [
            r.PartitionRecord(
                partition_id=index,
                topic_id=TOPIC_ID,
                replicas=[OTHER, BROKER_ID],
                isr=[OTHER, BROKER_ID],
                leader=OTHER,
                directories=[FORMER, directory],
            )
            for index, directory in enumerate(stated)
        ]
        records = [level, r.TopicRecord(name="t", topic_id=TOPIC_ID), *partitions]
        self.published.image = await image_after(records, EMPTY_IMAGE)
        for index, path in places.items():
            self.held.dir_of[TopicPartition("t", index)] = cast(Any, self.dirs[path])

    async def check(self) -> dict[int, UUID]:
        """Return the directory that is reported for each partition."""
        self.requests.clear()
        await self.manager.check()
        return {
            one.partition_index: directory.id
            for request in self.requests
            for directory in request.directories
            for topic in directory.topics
            for one in topic.partitions
            if topic.topic_id == TOPIC_ID
        }


async def test_replicas_in_other_directories_than_the_metadata_state_are_reported() -> None:
    reports = Reports()
    # Partition 2 has no log yet, partition 3 is no partition of the cluster.
    await reports.begin([FORMER, SECOND, FORMER], {0: "/first", 1: "/second", 3: "/first"})
    assert await reports.check() == {0: FIRST}


async def test_a_log_that_has_failed_alone_is_reported_as_lost() -> None:
    reports = Reports()
    await reports.begin([FIRST, SECOND], {0: "/first", 1: "/second"})
    assert await reports.check() == {}
    failure = LogFailedError(TopicPartition("t", 0), "/first", OSError(2, "a file was deleted"))
    reports.held.offline[TopicPartition("t", 0)] = failure
    assert await reports.check() == {0: LOST_DIRECTORY}
    # The failure of a directory is reported in heartbeats, which covers all of its replicas.
    reports.dirs["/first"].is_online = False
    assert await reports.check() == {}


async def test_a_log_that_was_reported_as_lost_is_reported_again_when_it_was_opened() -> None:
    reports = Reports()
    await reports.begin([LOST_DIRECTORY], {0: "/first"})
    assert await reports.check() == {0: FIRST}


async def test_changes_after_replicas_and_metadata_agreed_are_reported() -> None:
    reports = Reports()
    await reports.begin([FIRST, SECOND], {0: "/first", 1: "/second"})
    for _ in range(2):
        assert await reports.check() == {}
    reports.held.dir_of[TopicPartition("t", 0)] = cast(Any, reports.dirs["/second"])
    assert await reports.check() == {0: SECOND}
    await reports.begin([SECOND, SECOND], {})
    assert await reports.check() == {}
    await reports.begin([SECOND, FORMER], {})
    assert await reports.check() == {1: SECOND}
