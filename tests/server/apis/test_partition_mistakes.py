"""A mistake of the broker's in one partition, which requests for several partitions answer for that one alone."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.data_plane import DataPlane, batch, play, produce

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.replica_manager import ReplicaManager

BOTH = range(2)
ENDS = [ListOffsetsPartition(partition_index=i, timestamp=-1, max_num_offsets=1) for i in BOTH]
LATEST = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=ENDS)])
DELETED = DeleteRecordsRequest(
    topics=[
        DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=i, offset=-1) for i in BOTH])
    ],
    timeout_ms=1000,
)
EPOCHS = OffsetForLeaderEpochRequest(
    topics=[
        OffsetForLeaderTopic(
            topic="t",
            partitions=[OffsetForLeaderPartition(partition=i, current_leader_epoch=-1, leader_epoch=0) for i in BOTH],
        )
    ]
)
PRODUCERS = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=list(BOTH))])


@pytest.mark.parametrize(
    ("request_", "version", "where", "spared"),
    [
        (LATEST, 0, (Partition, "legacy_fetch_offsets_for_timestamp"), 0),
        (LATEST, 7, (Partition, "fetch_offset_for_timestamp"), 0),
        (DELETED, 2, (Partition, "delete_records"), 0),
        (DELETED, 2, (ReplicaManager, "get_leader_partition"), 1),
        (EPOCHS, 3, (Partition, "end_offset_for_epoch"), 0),
        (PRODUCERS, 0, (ReplicaManager, "get_leader_partition"), 0),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else None,
)
def test_a_mistake_in_one_partition_is_not_that_of_the_others(
    monkeypatch: pytest.MonkeyPatch, request_: Any, version: int, where: tuple[type, str], spared: int
) -> None:
    owner, name = where
    usual, calls = getattr(owner, name), 0

    def mistaken(self: Any, *args: Any, **options: Any) -> Any:
        nonlocal calls
        if (args[1] if owner is ReplicaManager else self.topic_partition.partition) == 0:
            calls += 1
            if calls > spared:
                raise ValueError("a mistake")
        return usual(self, *args, **options)

    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        await connection.send(produce(batch(b"v"), index=1), 9)
        monkeypatch.setattr(owner, name, mistaken)
        response = await connection.send(request_, version)
        codes = [one.error_code for one in response.topics[0].partitions]
        assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]
        assert plane.server.apis.failures == 1

    play(talk)
