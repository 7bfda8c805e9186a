"""What a client may not touch is taken out of its request in one place, whatever the API."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.data_plane import PAGE_CACHE, DataPlane, batch, play, produce

from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.apis import API_MESSAGES, ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.schema import fields_of
from barnabas.server.apis.error_answers import ITEMS
from barnabas.server.apis.table import SERVED
from barnabas.server.network.session import ANONYMOUS, Session

OPEN = {ApiKey.API_VERSIONS}
"""What everybody may ask."""


class Guard:
    """Refuses what a test names, and notes what was asked."""

    def __init__(self, *refused: tuple[AclOperation, AclResourceType, str]) -> None:
        self.refused = set(refused)
        self.asked: list[tuple[AclOperation, AclResourceType, str]] = []

    def authorize(self, session: Session, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:
        assert session.principal == ANONYMOUS and session.client_host
        self.asked.append((operation, resource_type, name))
        return (operation, resource_type, name) not in self.refused


def guarded(guard: Guard, talk: Any) -> None:
    play(talk, settings=PAGE_CACHE, authorizer=guard)


@pytest.mark.parametrize("key", sorted(SERVED), ids=lambda key: key.name)
def test_every_right_names_fields_that_there_are_and_a_place_for_its_refusals(key: ApiKey) -> None:
    rights = SERVED[key].rights
    assert bool(rights) == (key not in OPEN)
    fields = {field.name: field for field in fields_of(API_MESSAGES[key].request)}
    for right in rights:
        if right.field and fields[right.field].is_array:
            assert any(row.asked[0] == right.field for row in ITEMS[key]), right
        elif right.field:
            assert right.field in fields
        else:
            assert right.resource_type is AclResourceType.CLUSTER


def test_the_rest_of_a_request_is_done_and_the_refused_is_said_item_by_item() -> None:
    guard = Guard((AclOperation.DESCRIBE, AclResourceType.TOPIC, "secret"))

    async def talk(plane: DataPlane) -> None:
        for name in ("open", "secret"):
            await plane.create_topic(name)
        client = await plane.connect()
        wanted = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
        topics = [ListOffsetsTopic(name=name, partitions=wanted) for name in ("secret", "open")]
        for version in range(1, 12):
            answer = await client.send(ListOffsetsRequest(topics=topics, replica_id=-1), version)
            found = {topic.name: [part.error_code for part in topic.partitions] for topic in answer.topics}
            assert found == {"open": [0], "secret": [ErrorCode.TOPIC_AUTHORIZATION_FAILED]}, version

    guarded(guard, talk)
    assert (AclOperation.DESCRIBE, AclResourceType.TOPIC, "open") in guard.asked


def test_nothing_left_to_ask_for_is_not_everything() -> None:
    async def talk(plane: DataPlane) -> None:
        for name in ("open", "secret"):
            await plane.create_topic(name)
        client = await plane.connect()
        for version in range(14):
            answer = await client.send(MetadataRequest(topics=[MetadataRequestTopic(name="secret")]), version)
            assert [(topic.name, topic.error_code) for topic in answer.topics] == [
                ("secret", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            ]

    guarded(Guard((AclOperation.DESCRIBE, AclResourceType.TOPIC, "secret")), talk)


def test_what_is_refused_is_not_done() -> None:
    guard = Guard(
        (AclOperation.WRITE, AclResourceType.TOPIC, "t"),
        (AclOperation.DELETE, AclResourceType.TOPIC, "t"),
        (AclOperation.CREATE, AclResourceType.TOPIC, "new"),
        (AclOperation.CREATE, AclResourceType.CLUSTER, "kafka-cluster"),
        (AclOperation.DESCRIBE_CONFIGS, AclResourceType.CLUSTER, "kafka-cluster"),
    )

    async def talk(plane: DataPlane) -> None:
        client = await plane.connect()
        assert (await plane.append(batch(b"x"))).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert plane.partition().log.log_end_offset == 0
        unheard = await plane.raw()
        unheard.send(ApiKey.PRODUCE, 9, produce(batch(b"x"), acks=0))
        assert await unheard.is_closed()
        answer = await client.send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        assert answer.responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert "t" in plane.state.metadata
        wish = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
        answer = await client.send(CreateTopicsRequest(topics=[wish], timeout_ms=1000), 7)
        assert answer.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert "new" not in plane.state.metadata
        resources = [
            DescribeConfigsResource(resource_type=kind, resource_name=name) for kind, name in ((4, ""), (2, "t"))
        ]
        answer = await client.send(DescribeConfigsRequest(resources=resources), 4)
        assert {one.resource_type: one.error_code for one in answer.results} == {
            2: ErrorCode.NONE,
            4: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        }

    guarded(guard, talk)
