"""Metadata, topic and cluster APIs over a real controller: Kafka's answers, in every version."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable
from types import ModuleType
from typing import Any, cast
from uuid import UUID

import pytest
from tests.server.control_plane import BROKER_ID, ControlPlane
from tests.server.handled import SingleSteps, handled, handled_in_steps

from barnabas.protocol.acls import CLUSTER_NAME, AclResourceType
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_response, encode_response
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.server.apis.authorized_operations import NOT_REQUESTED, SUPPORTED
from barnabas.server.apis.handlers import (
    alter_partition_reassignments,
    api_versions,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_topic_partitions,
    elect_leaders,
    init_producer_id,
    list_partition_reassignments,
    metadata,
)
from barnabas.server.apis.table import SERVED
from barnabas.server.controller.admin_manager import TopicCreation
from barnabas.server.metadata.metadata_cache import PartitionImage, TopicImage

OTHER_ID = UUID(int=77)


async def ask(plane: ControlPlane, handler: ModuleType, key: ApiKey, version: int, request: Any) -> Any:
    """Asks a handler and sends its answer over the wire of that version."""
    answer = handled(handler, plane.context(version), request)
    if inspect.isawaitable(answer):
        answer = await answer
    body = b"".join(bytes(part) for part in encode_response(answer, version))
    return decode_response(key, version, memoryview(body), 0, len(body))


async def with_topics(*names: str, partitions: int = 1, **properties: str) -> ControlPlane:
    plane = await ControlPlane({key.replace("_", "."): value for key, value in properties.items()}).start()
    await plane.controller.create_topics([TopicCreation(name, partitions, 1) for name in names])
    return plane


def named(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


# Metadata


async def ask_metadata(plane: ControlPlane, version: int, **fields: Any) -> Any:
    return await ask(plane, metadata, ApiKey.METADATA, version, MetadataRequest(**fields))


async def test_topics_may_come_and_go_while_all_are_listed() -> None:
    """Who is gone by then was never asked for, and is not unknown."""
    plane = await with_topics("a", "b", "d")
    steps = metadata.handle(
        plane.context(12),
        MetadataRequest(topics=None),
        config=plane.config,
        controller=None,
        metadata_cache=plane.metadata,
        sliced_work=cast(Any, SingleSteps()),
    )
    steps.send(None)
    await plane.controller.create_topics([TopicCreation("c", 1, 1)])
    plane.metadata.remove_topics(["b"])
    with pytest.raises(StopIteration) as end:
        while True:
            steps.send(None)
    assert [(topic.name, topic.error_code) for topic in end.value.value.topics] == [("a", 0), ("d", 0)]


def with_many_topics(plane: ControlPlane, count: int) -> list[str]:
    """Topics that nobody has made, but that this broker believes in."""
    partitions = {0: PartitionImage(0, BROKER_ID, 0, 0, (BROKER_ID,), (BROKER_ID,))}
    names = [f"n{number:04d}" for number in range(count)]
    plane.metadata.put_topics(TopicImage(name, UUID(int=number + 1), partitions) for number, name in enumerate(names))
    return names


def asked_a_step(
    plane: ControlPlane, handler: ModuleType, request: Any, refused: Iterable[str] = ()
) -> tuple[int, Any]:
    """How often an authorizer is asked between two rests of a handler at most, and what its work comes to."""
    asked: list[str] = []
    context, forbidden = plane.context(11), set(refused)

    def may(operation: object, resource_type: object, name: str) -> bool:
        asked.append(name)
        return name not in forbidden

    context.has_authorizer, context.is_authorized = True, may
    steps = handled_in_steps(handler, context, request)
    most = len(asked)
    while True:
        before = len(asked)
        try:
            steps.send(None)
        except StopIteration as end:
            return max(most, len(asked) - before), end.value
        most = max(most, len(asked) - before)


async def test_an_authorizer_is_asked_about_one_topic_at_a_time() -> None:
    """There may be tens of thousands, and as many rules: everybody else is served in between."""
    plane = await ControlPlane().start()
    secret, *names = with_many_topics(plane, 500)
    everything = MetadataRequest(topics=None)
    most, response = asked_a_step(plane, metadata, everything, [secret])
    assert [topic.name for topic in response.topics] == names
    assert most == 1
    everything.include_topic_authorized_operations = True
    most, response = asked_a_step(plane, metadata, everything, [secret])
    assert {topic.topic_authorized_operations for topic in response.topics} != {NOT_REQUESTED}
    assert [topic.name for topic in response.topics] == names
    assert most == 1 + len(SUPPORTED[AclResourceType.TOPIC])
    unknown = [f"x{number}" for number in range(500)]
    most, response = asked_a_step(plane, metadata, MetadataRequest(topics=named(*unknown)), [*unknown, CLUSTER_NAME])
    assert {topic.error_code for topic in response.topics} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert most == 2
    pages = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=10_000)
    most, response = asked_a_step(plane, describe_topic_partitions, pages, [secret])
    assert [topic.name for topic in response.topics] == names
    assert most == 1 + len(SUPPORTED[AclResourceType.TOPIC])


async def test_a_topic_that_is_gone_before_its_page_is_filled_is_not_unknown() -> None:
    plane = await ControlPlane().start()
    first, gone, last = with_many_topics(plane, 3)
    request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=10)
    context = plane.context(0)
    steps = handled_in_steps(describe_topic_partitions, context, request)
    steps.send(None)
    plane.metadata.remove_topics([gone])
    with pytest.raises(StopIteration) as end:
        while True:
            steps.send(None)
    assert [(topic.name, topic.error_code) for topic in end.value.value.topics] == [(first, 0), (last, 0)]


@pytest.mark.parametrize("version", range(14))
async def test_metadata_of_all_topics_in_every_version(version: int) -> None:
    plane = await with_topics("a", "b", partitions=2)
    response = await ask_metadata(plane, version, topics=None if version else [])
    assert [(b.node_id, b.host, b.port) for b in response.brokers] == [(BROKER_ID, "127.0.0.1", 9092)]
    assert [topic.name for topic in response.topics] == ["a", "b"]
    assert [p.leader_id for p in response.topics[0].partitions] == [BROKER_ID, BROKER_ID]
    if version >= 1:
        assert response.controller_id == BROKER_ID
        assert response.brokers[0].rack == "r1"
    if version >= 2:
        assert len(response.cluster_id) == 22
    if version >= 10:
        assert response.topics[0].topic_id == plane.metadata.topic_id("a")
    assert response.topics[0].topic_authorized_operations == NOT_REQUESTED
    assert response.cluster_authorized_operations == NOT_REQUESTED


@pytest.mark.parametrize("version", range(1, 14))
async def test_empty_list_means_no_topics_since_version_1(version: int) -> None:
    plane = await with_topics("a")
    assert (await ask_metadata(plane, version, topics=[])).topics == []


@pytest.mark.parametrize("version", range(14))
async def test_missing_topic_is_created_ready_and_answered_with_a_retriable_error(version: int) -> None:
    plane = await with_topics(num_partitions="3")
    response = await ask_metadata(plane, version, topics=named("new", "new"))
    expected = ErrorCode.LEADER_NOT_AVAILABLE if version <= 6 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("new", expected)]
    image = plane.metadata.topic("new")
    assert image is not None
    assert len(image.partitions) == 3
    again = await ask_metadata(plane, version, topics=named("new"))
    assert again.topics[0].error_code == ErrorCode.NONE


async def test_nothing_is_created_where_client_or_broker_forbid_it() -> None:
    plane = await with_topics()
    response = await ask_metadata(plane, 4, topics=named("new"), allow_auto_topic_creation=False)
    assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    plane = await with_topics(auto_create_topics_enable="false")
    response = await ask_metadata(plane, 4, topics=named("new"))
    assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list(plane.metadata.topic_names) == []


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    ],
)
@pytest.mark.parametrize("is_whole", [False, True])
async def test_a_topic_that_may_be_there_is_not_denied(
    monkeypatch: pytest.MonkeyPatch, error: ErrorCode, is_whole: bool
) -> None:
    """A broker of a cluster that has started knows no topic until the controller has told it."""

    async def refuse(names: Iterable[str], **_: Any) -> dict[str, KafkaError]:
        if is_whole:
            raise KafkaError(error)
        return dict.fromkeys(names, KafkaError(error))

    plane = await with_topics()
    monkeypatch.setattr(plane.controller, "auto_create", refuse)
    response = await ask_metadata(plane, 9, topics=named("orders"))
    assert response.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE


async def test_names_that_cannot_be_are_refused_beside_good_ones() -> None:
    plane = await with_topics("a")
    response = await ask_metadata(plane, 9, topics=named("a", "b c", "a_b", "a.b"))
    codes = {topic.name: topic.error_code for topic in response.topics}
    assert codes == {
        "a": ErrorCode.NONE,
        "b c": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "a_b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "a.b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert plane.metadata.topic("a_b") is not None
    # As in Kafka, the topics of one request do not collide with each other.
    assert plane.metadata.topic("a.b") is not None
    (refused,) = (await ask_metadata(plane, 9, topics=named("a_b", "x.y"))).topics[1:]
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and plane.metadata.topic("x.y") is not None
    await ask_metadata(plane, 9, topics=named("x_y"))
    assert plane.metadata.topic("x_y") is None


@pytest.mark.parametrize("version", range(14))
async def test_failed_creation_returns_the_error_of_kafka_4_4(version: int) -> None:
    plane = await with_topics(default_replication_factor="3")
    response = await ask_metadata(plane, version, topics=named("new"))
    assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert plane.metadata.topic("new") is None


async def test_topics_by_id_since_version_12() -> None:
    plane = await with_topics("a")
    topic_id = plane.metadata.topic_id("a")
    assert topic_id is not None
    wanted = [MetadataRequestTopic(topic_id=topic_id, name=None), MetadataRequestTopic(topic_id=OTHER_ID, name=None)]
    response = await ask_metadata(plane, 12, topics=wanted)
    assert [(t.name, t.topic_id, t.error_code) for t in response.topics] == [
        ("a", topic_id, ErrorCode.NONE),
        (None, OTHER_ID, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    response = await ask_metadata(plane, 10, topics=wanted)
    assert {topic.error_code for topic in response.topics} == {ErrorCode.INVALID_REQUEST}


async def test_authorized_operations_when_asked_for() -> None:
    plane = await with_topics("a")
    response = await ask_metadata(
        plane,
        8,
        topics=named("a"),
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    assert response.topics[0].topic_authorized_operations == 3576
    assert response.cluster_authorized_operations == 8096
    response = await ask_metadata(plane, 8, topics=named("a"))
    assert response.topics[0].topic_authorized_operations == NOT_REQUESTED


# CreateTopics


async def ask_create(plane: ControlPlane, version: int, *topics: CreatableTopic, **fields: Any) -> Any:
    request = CreateTopicsRequest(topics=list(topics), **fields)
    context = plane.context(version, log_manager=None)
    answer = await handled(create_topics, context, request)
    body = b"".join(bytes(part) for part in encode_response(answer, version))
    return decode_response(ApiKey.CREATE_TOPICS, version, memoryview(body), 0, len(body))


@pytest.mark.parametrize("version", range(8))
async def test_create_topics_in_every_version(version: int) -> None:
    plane = await with_topics("old")
    good = CreatableTopic(
        name="good",
        num_partitions=2,
        replication_factor=1,
        configs=[CreatableTopicConfig(name="retention.ms", value="9")],
    )
    placed = CreatableTopic(
        name="placed",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[BROKER_ID])],
    )
    old = CreatableTopic(name="old", num_partitions=1, replication_factor=1)
    twice = CreatableTopic(name="twice", num_partitions=1, replication_factor=1)
    response = await ask_create(plane, version, good, old, placed, twice, twice)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("good", ErrorCode.NONE),
        ("old", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("placed", ErrorCode.NONE),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]
    assert set(plane.metadata.topic_names) == {"old", "good", "placed"}
    if version >= 1:
        assert response.topics[0].error_message is None
        assert "already exists" in response.topics[1].error_message
    if version >= 5:
        assert (response.topics[0].num_partitions, response.topics[0].replication_factor) == (2, 1)
        configs = {config.name: (config.value, config.config_source) for config in response.topics[0].configs}
        assert configs["retention.ms"] == ("9", 1)
        assert configs["cleanup.policy"] == ("delete", 5)
    if version >= 7:
        assert response.topics[0].topic_id == plane.metadata.topic_id("good")


async def test_validation_only_says_what_would_be() -> None:
    plane = await with_topics()
    topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1)
    response = await ask_create(plane, 7, topic, validate_only=True)
    assert (response.topics[0].error_code, response.topics[0].num_partitions) == (ErrorCode.NONE, 1)
    assert response.topics[0].topic_id == UUID(int=0)
    assert "t" not in plane.metadata


async def test_an_answer_tells_of_so_many_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(create_topics, "MAX_SETTINGS", 2)
    plane = await ControlPlane().start()
    wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in "abc"]
    first, *others = (await ask_create(plane, 5, *wanted, validate_only=True)).topics
    assert first.configs and first.topic_config_error_code == ErrorCode.NONE
    assert [(one.error_code, one.num_partitions, one.configs) for one in others] == [(ErrorCode.NONE, 1, [])] * 2
    assert {one.topic_config_error_code for one in others} == {ErrorCode.POLICY_VIOLATION}


async def test_whole_requests_are_refused_topic_by_topic() -> None:
    plane = await with_topics()
    response = await ask_create(plane, 7, CreatableTopic(name="t", num_partitions=10_001, replication_factor=1))
    assert response.topics[0].error_code == ErrorCode.POLICY_VIOLATION
    other = ControlPlane(tree=plane.tree)
    response = await ask_create(other, 0, CreatableTopic(name="t", num_partitions=1, replication_factor=1))
    assert response.topics[0].error_code == ErrorCode.NOT_CONTROLLER
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=1, assignments=None)])
    response = await ask(other, create_partitions, ApiKey.CREATE_PARTITIONS, 0, request)
    assert response.results[0].error_code == ErrorCode.NOT_CONTROLLER
    response = await ask_delete(other, 0, topic_names=["t"])
    assert response.responses[0].error_code == ErrorCode.NOT_CONTROLLER


async def test_krafts_own_topic_cannot_be_created() -> None:
    plane = await with_topics()
    topic = CreatableTopic(name="__cluster_metadata", num_partitions=1, replication_factor=1)
    response = await ask_create(plane, 7, topic)
    assert response.topics[0].error_code == ErrorCode.INVALID_REQUEST


# DeleteTopics


async def ask_delete(plane: ControlPlane, version: int, **fields: Any) -> Any:
    return await ask(
        plane, delete_topics, ApiKey.DELETE_TOPICS, version, DeleteTopicsRequest(timeout_ms=1000, **fields)
    )


@pytest.mark.parametrize("version", range(6))
async def test_delete_topics_by_name_in_every_version(version: int) -> None:
    plane = await with_topics("a", "b")
    response = await ask_delete(plane, version, topic_names=["a", "ghost", "a"])
    assert [(r.name, r.error_code) for r in response.responses] == [
        ("a", ErrorCode.NONE),
        ("ghost", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert list(plane.metadata.topic_names) == ["b"]


async def test_the_id_of_a_deleted_topic_does_not_delete_a_new_topic_of_its_name() -> None:
    """A repeated deletion waits for the first one, and in between another client creates the topic again."""
    plane = await with_topics("a")
    first_id = plane.metadata.topic_id("a")
    by_id = [DeleteTopicState(name=None, topic_id=first_id)]
    deleted, created, repeated = await asyncio.gather(
        ask_delete(plane, 6, topics=by_id),
        ask_create(plane, 7, CreatableTopic(name="a", num_partitions=1, replication_factor=1), timeout_ms=1000),
        ask_delete(plane, 6, topics=by_id),
    )
    assert [response.responses[0].error_code for response in (deleted, repeated)] == [0, ErrorCode.UNKNOWN_TOPIC_ID]
    assert created.topics[0].error_code == ErrorCode.NONE
    assert plane.metadata.topic_id("a") == created.topics[0].topic_id != first_id


async def test_delete_topics_by_name_or_id_since_version_6() -> None:
    plane = await with_topics("a", "b", "c", "d")
    ids = {name: plane.metadata.topic_id(name) or OTHER_ID for name in "abcd"}
    wanted = [
        DeleteTopicState(name="a"),
        DeleteTopicState(topic_id=ids["b"]),
        DeleteTopicState(name="c", topic_id=ids["c"]),
        DeleteTopicState(topic_id=OTHER_ID),
        DeleteTopicState(),
        DeleteTopicState(name="d"),
        DeleteTopicState(topic_id=ids["d"]),
    ]
    response = await ask_delete(plane, 6, topics=wanted)
    assert [r.error_code for r in response.responses] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert [(r.name, r.topic_id) for r in response.responses[:2]] == [("a", ids["a"]), ("b", ids["b"])]
    assert list(plane.metadata.topic_names) == ["c", "d"]


@pytest.mark.parametrize(("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
async def test_deletion_can_be_disabled(version: int, code: ErrorCode) -> None:
    plane = await with_topics("a", delete_topic_enable="false")
    response = await ask_delete(plane, version, topic_names=["a"])
    assert response.responses[0].error_code == code
    assert "a" in plane.metadata


async def test_delete_topics_waits_for_as_long_as_the_client_says(monkeypatch: pytest.MonkeyPatch) -> None:
    plane, waited = await with_topics("a"), []

    async def delete(names: list[str], *, timeout_ms: float, **other: Any) -> dict[str, KafkaError | None]:
        waited.append(timeout_ms)
        return dict.fromkeys(names)

    monkeypatch.setattr(plane.controller, "delete_topics", delete)
    await ask_delete(plane, 5, topic_names=["a"])
    assert waited == [1000]


# CreatePartitions


@pytest.mark.parametrize("version", range(4))
async def test_create_partitions_in_every_version(version: int) -> None:
    plane = await with_topics("a", "b")
    wanted = [
        CreatePartitionsTopic(name="a", count=3, assignments=None),
        CreatePartitionsTopic(name="b", count=1, assignments=None),
        CreatePartitionsTopic(name="ghost", count=1, assignments=None),
        CreatePartitionsTopic(name="twice", count=1, assignments=None),
        CreatePartitionsTopic(name="twice", count=1, assignments=None),
    ]
    request = CreatePartitionsRequest(topics=wanted, timeout_ms=1000)
    response = await ask(plane, create_partitions, ApiKey.CREATE_PARTITIONS, version, request)
    assert [(r.name, r.error_code) for r in response.results] == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.INVALID_PARTITIONS),
        ("ghost", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]
    assert response.results[0].error_message is None
    image = plane.metadata.topic("a")
    assert image is not None
    assert len(image.partitions) == 3


# DescribeCluster, ApiVersions, InitProducerId


@pytest.mark.parametrize("version", range(3))
async def test_describe_cluster_in_every_version(version: int) -> None:
    plane = await with_topics()
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    response = await ask(plane, describe_cluster, ApiKey.DESCRIBE_CLUSTER, version, request)
    assert response.cluster_id == plane.metadata.cluster_id
    assert response.controller_id == BROKER_ID
    assert [(b.broker_id, b.port, b.is_fenced) for b in response.brokers] == [(BROKER_ID, 9092, False)]
    assert response.cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    ("endpoint_type", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
async def test_only_broker_endpoints_are_described(endpoint_type: int, code: ErrorCode) -> None:
    plane = await with_topics()
    with pytest.raises(KafkaError) as refused:
        handled(describe_cluster, plane.context(1), DescribeClusterRequest(endpoint_type=endpoint_type))
    assert refused.value.code is code


@pytest.mark.parametrize("version", range(6))
async def test_api_versions_lists_the_table_that_dispatches(version: int) -> None:
    plane = await with_topics()
    request = ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="4.1.1")
    response = await ask(plane, api_versions, ApiKey.API_VERSIONS, version, request)
    listed = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
    assert listed == {int(key): (api.lowest, api.highest) for key, api in SERVED.items()}
    assert list(listed) == sorted(listed)
    finalized = {one.name: (one.min_version_level, one.max_version_level) for one in response.finalized_features}
    supported = {one.name: (one.min_version, one.max_version) for one in response.supported_features}
    levels = {"group.version": 1, "share.version": 2, "streams.version": 1, "transaction.version": 2}
    assert finalized == ({name: (level, level) for name, level in levels.items()} if version >= 3 else {})
    metadata = {"metadata.version": (7, 33)}
    from_zero = {
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "share.version": (0, 2),
        "streams.version": (0, 1),
        "transaction.version": (0, 2),
    }
    assert supported == (metadata | from_zero if version >= 4 else metadata if version == 3 else {})


async def test_too_new_api_versions_is_answered_in_version_0() -> None:
    plane = await with_topics()
    answer = handled(api_versions, plane.context(99), None)
    body = b"".join(bytes(part) for part in encode_response(answer, 0))
    response = decode_response(ApiKey.API_VERSIONS, 0, memoryview(body), 0, len(body))
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(k.api_key, k.min_version, k.max_version) for k in response.api_keys] == [(18, 0, 5)]


@pytest.mark.parametrize(
    ("version", "cluster", "node_id", "code"),
    [
        (5, "this", BROKER_ID, ErrorCode.NONE),
        (5, None, -1, ErrorCode.NONE),
        (5, "this", BROKER_ID + 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        (5, "another", BROKER_ID, ErrorCode.REBOOTSTRAP_REQUIRED),
        (5, "", BROKER_ID, ErrorCode.REBOOTSTRAP_REQUIRED),
        (5, "this", -1, ErrorCode.INVALID_REQUEST),
        (5, "another", -1, ErrorCode.INVALID_REQUEST),
        (5, None, BROKER_ID, ErrorCode.INVALID_REQUEST),
        (4, "another", BROKER_ID, ErrorCode.NONE),
        (4, "another", -1, ErrorCode.NONE),
    ],
)
async def test_a_client_of_another_cluster_or_broker_must_bootstrap_again(
    version: int, cluster: str | None, node_id: int, code: ErrorCode
) -> None:
    plane = await with_topics()
    request = ApiVersionsRequest(
        client_software_name="apache-kafka-java",
        client_software_version="4.4.0",
        cluster_id=plane.metadata.cluster_id if cluster == "this" else cluster,
        node_id=node_id,
    )
    response = await ask(plane, api_versions, ApiKey.API_VERSIONS, version, request)
    assert response.error_code == code
    assert bool(response.api_keys) == (code == ErrorCode.NONE)


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "x\n"])
async def test_client_software_must_have_a_plain_name(name: str) -> None:
    plane = await with_topics()
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    response = await ask(plane, api_versions, ApiKey.API_VERSIONS, 3, request)
    assert response.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(6))
async def test_producer_ids_are_never_given_twice(version: int) -> None:
    plane = await with_topics()
    context = plane.context(version)
    request = InitProducerIdRequest(transactional_id=None)
    ids = []
    for _ in range(1001):
        response = await handled(init_producer_id, context, request)
        assert (response.error_code, response.producer_epoch) == (ErrorCode.NONE, 0)
        encode_response(response, version)
        ids.append(response.producer_id)
    assert ids == list(range(1001))
    plane = await plane.restarted()
    response = await handled(init_producer_id, plane.context(version), request)
    assert response.producer_id == 2000


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (InitProducerIdRequest(transactional_id=None, producer_id=5), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest(transactional_id=None, producer_epoch=5), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_producer_ids_that_cannot_be_given(request_: InitProducerIdRequest, code: ErrorCode) -> None:
    plane = await with_topics()
    response = await ask(plane, init_producer_id, ApiKey.INIT_PRODUCER_ID, 4, request_)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (code, -1, -1)


# DescribeTopicPartitions


async def ask_pages(plane: ControlPlane, limit: int, *names: str) -> list[list[tuple[str, int]]]:
    """All pages, each a list of (topic, partition)."""
    pages = []
    cursor = None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
        )
        response = await ask(plane, describe_topic_partitions, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)
        pages.append([(topic.name, p.partition_index) for topic in response.topics for p in topic.partitions])
        cursor = response.next_cursor
        if cursor is None:
            return pages


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 6, 100])
async def test_pages_hold_every_partition_once_in_order(limit: int) -> None:
    plane = await with_topics("b", "a", partitions=3)
    pages = await ask_pages(plane, limit)
    expected = [(name, index) for name in "ab" for index in range(3)]
    assert [entry for page in pages for entry in page] == expected
    assert all(len(page) == limit for page in pages[:-1])
    assert len(pages[-1]) <= limit


async def test_named_topics_and_unknown_ones() -> None:
    plane = await with_topics("a", "b", partitions=2)
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in ("b", "ghost", "?")])
    response = await ask(plane, describe_topic_partitions, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("?", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("b", ErrorCode.NONE),
        ("ghost", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    partition = response.topics[1].partitions[1]
    assert (partition.leader_id, partition.isr_nodes, partition.eligible_leader_replicas) == (
        BROKER_ID,
        [BROKER_ID],
        [],
    )
    assert response.topics[1].topic_authorized_operations == 3576


async def test_limit_of_the_broker_holds() -> None:
    plane = await with_topics("a", partitions=5, max_request_partition_size_limit="2")
    assert [len(page) for page in await ask_pages(plane, 100)] == [2, 2, 1]
    assert [len(page) for page in await ask_pages(plane, 0)] == [1] * 5


@pytest.mark.parametrize(
    "cursor", [Cursor(topic_name="a", partition_index=-1), Cursor(topic_name="b", partition_index=0)]
)
async def test_cursor_must_point_somewhere(cursor: Cursor) -> None:
    plane = await with_topics("a")
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="a")], cursor=cursor)
    response = handled(describe_topic_partitions, plane.context(0), request)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("a", ErrorCode.INVALID_REQUEST)]


# ElectLeaders, reassignments


@pytest.mark.parametrize("version", range(3))
async def test_elect_leaders_in_every_version(version: int) -> None:
    plane = await with_topics("a")
    wanted = [TopicPartitions(topic="a", partitions=[0, 7])]
    response = await ask(
        plane, elect_leaders, ApiKey.ELECT_LEADERS, version, ElectLeadersRequest(topic_partitions=wanted)
    )
    (topic,) = response.replica_election_results
    assert [(p.partition_id, p.error_code) for p in topic.partition_result] == [
        (0, ErrorCode.ELECTION_NOT_NEEDED),
        (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    everything = ElectLeadersRequest(topic_partitions=None)
    response = await ask(plane, elect_leaders, ApiKey.ELECT_LEADERS, version, everything)
    assert response.replica_election_results == []


async def test_unknown_kind_of_election_is_refused() -> None:
    plane = await with_topics("a")
    with pytest.raises(KafkaError) as refused:
        await handled(elect_leaders, plane.context(1), ElectLeadersRequest(election_type=2))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


async def test_nothing_is_ever_on_its_way_elsewhere() -> None:
    plane = await with_topics("a")
    for topics in (None, [ListPartitionReassignmentsTopics(name="a", partition_indexes=[0])]):
        request = ListPartitionReassignmentsRequest(topics=topics)
        key = ApiKey.LIST_PARTITION_REASSIGNMENTS
        response = await ask(plane, list_partition_reassignments, key, 0, request)
        assert (response.error_code, response.topics) == (ErrorCode.NONE, [])


@pytest.mark.parametrize("version", range(2))
async def test_reassignment_is_decided_by_partition(version: int) -> None:
    plane = await with_topics("a", partitions=3)
    partitions = [
        ReassignablePartition(partition_index=0, replicas=[BROKER_ID]),
        ReassignablePartition(partition_index=1, replicas=[5]),
        ReassignablePartition(partition_index=2, replicas=None),
    ]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="a", partitions=partitions)])
    key = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    response = await ask(plane, alter_partition_reassignments, key, version, request)
    assert [p.error_code for p in response.responses[0].partitions] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    ]
