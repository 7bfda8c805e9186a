"""A topic that is deleted is gone when the answer comes; a later one of its name is another topic to everybody."""

from __future__ import annotations

from uuid import UUID

from tests.server.data_plane import (
    PAGE_CACHE,
    DataPlane,
    at,
    batch,
    fetch,
    only_fetched,
    only_produced,
    play,
    produce,
    values_in,
)

from barnabas.clients.connection import BrokerConnection
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)


async def delete(plane: DataPlane, connection: BrokerConnection, name: str) -> None:
    """Delete a topic over the wire; when the answer is there, nothing of it is."""
    response = await connection.send(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000), 6)
    assert [result.error_code for result in response.responses] == [ErrorCode.NONE]
    assert name not in plane.state.metadata
    assert plane.state.replica_manager.get_partition(name, 0) is None
    assert not [one for one in plane.world.broker.disk.list_dir("/data") if one == f"{name}-0"]


async def named(connection: BrokerConnection, topic_id: UUID) -> tuple[int, str | None]:
    """What Metadata says of an id."""
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=None)])
    (topic,) = (await connection.send(request, 12)).topics
    return topic.error_code, topic.name


async def commit(connection: BrokerConnection, topic_id: UUID, offset: int) -> int:
    """Commit an offset under a topic's id."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(topic_id=topic_id, partitions=[partition])
    response = await connection.send(OffsetCommitRequest(group_id="g", topics=[topic]), 10)
    return int(response.topics[0].partitions[0].error_code)


async def committed(connection: BrokerConnection, topic_id: UUID) -> tuple[int, int]:
    """(error, offset) under a topic's id."""
    topic = OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[topic])])
    (partition,) = (await connection.send(request, 10)).groups[0].topics[0].partitions
    return partition.error_code, partition.committed_offset


def test_a_topic_of_the_same_name_is_another_topic() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        await plane.create_topic("x")
        old = plane.topic_id("x")
        await plane.append(batch(b"old"), topic="x")
        await connection.send(FindCoordinatorRequest(key="g"), 2)
        assert await commit(connection, old, 1) == ErrorCode.NONE
        assert await committed(connection, old) == (ErrorCode.NONE, 1)

        await delete(plane, connection, "x")
        assert await named(connection, old) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
        await plane.create_topic("x")
        new = plane.topic_id("x")
        assert new != old
        assert await named(connection, new) == (ErrorCode.NONE, "x")
        assert await named(connection, old) == (ErrorCode.UNKNOWN_TOPIC_ID, None)

        for topic_id, error in ((old, ErrorCode.UNKNOWN_TOPIC_ID), (new, ErrorCode.NONE)):
            answer = only_produced(await connection.send(produce(batch(b"new"), topic_id=topic_id), 13))
            assert answer.error_code == error
            data = only_fetched(await connection.send(fetch(at(0), topic_id=topic_id), 13))
            assert data.error_code == error
            assert await commit(connection, topic_id, 1) == error
        assert values_in(only_fetched(await connection.send(fetch(at(0), topic_id=new), 13))) == [b"new"]
        assert (await committed(connection, old))[0] == ErrorCode.UNKNOWN_TOPIC_ID

    play(talk, settings=PAGE_CACHE)


def test_offsets_of_a_deleted_topic_are_none_of_a_later_one() -> None:
    async def talk(plane: DataPlane) -> None:
        connection = await plane.connect()
        await plane.create_topic("x")
        await connection.send(FindCoordinatorRequest(key="g"), 2)
        assert await commit(connection, plane.topic_id("x"), 7) == ErrorCode.NONE
        await delete(plane, connection, "x")
        await plane.create_topic("x")
        assert await committed(connection, plane.topic_id("x")) == (ErrorCode.NONE, -1)

    play(talk, settings=PAGE_CACHE)
