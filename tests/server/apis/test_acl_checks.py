"""What a client may not touch is taken out of its request in one place, whatever the API."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.cases import in_one_test
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
)

from barnabas.clients.connection import BrokerConnection
from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.apis import API_MESSAGES, ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from barnabas.protocol.messages.fetch import FetchRequest, FetchTopic, ReplicaState
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.schema import fields_of
from barnabas.server.apis.acl_checks import add_denied_items
from barnabas.server.apis.error_responses import ITEM_PATHS, error_response
from barnabas.server.apis.table import SERVED
from barnabas.server.coordinator.group.subscription_metadata import REGEX_LONGEST_MS
from barnabas.server.runtime.loop_sharing import ITEMS_PER_TURN, SlicedWork
from barnabas.server.security.session import ANONYMOUS, Session

OPEN = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
"""What everybody may ask."""
ONE_FOR_ALL = ApiKey.ADD_PARTITIONS_TO_TXN
"""Its list is only there in versions that have an error code for all."""
CLUSTER = (AclResourceType.CLUSTER, "kafka-cluster")
BY_HANDLER = {ApiKey.FETCH, ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_CLUSTER, ApiKey.LIST_TRANSACTIONS}
"""Only the handler knows what a request in a session is about, or leaves out what may not be seen."""
BY_HANDLER |= {ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN}
BY_HANDLER |= {ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN}
"""And a user's own tokens need no right."""


class Guard:
    """Refuses what a test names, and notes what was asked."""

    def __init__(self, *refused: tuple[AclOperation, AclResourceType, str]) -> None:
        self.refused = set(refused)
        self.asked: list[tuple[AclOperation, AclResourceType, str]] = []

    def authorize(self, session: Session, operation: AclOperation, resource_type: AclResourceType, name: str) -> bool:
        assert session.principal == ANONYMOUS and session.client_host
        self.asked.append((operation, resource_type, name))
        return (operation, resource_type, name) not in self.refused

    def authorize_some(self, session: Session, operation: AclOperation, resource_type: AclResourceType) -> bool:
        return not any(one[:2] == (operation, resource_type) for one in self.refused)


def guarded(guard: Guard, talk: Any) -> None:
    play(talk, settings=PAGE_CACHE, authorizer=guard)


async def make_group_log(plane: DataPlane, client: BrokerConnection) -> None:
    """Groups are found and served from here on."""
    deadline = plane.loop.time() + 60
    while (await client.send(FindCoordinatorRequest(key="g", key_type=0), 3)).error_code:
        assert plane.loop.time() < deadline
        await asyncio.sleep(0.1)
    while (await client.send(ListGroupsRequest(), 4)).error_code:
        assert plane.loop.time() < deadline
        await asyncio.sleep(0.1)


@in_one_test("key", sorted(SERVED))
def test_every_right_names_fields_that_there_are_and_a_place_for_its_refusals(key: ApiKey) -> None:
    rights = SERVED[key].acl_checks
    assert bool(rights) == (key not in OPEN | BY_HANDLER)
    fields = {field.name: field for field in fields_of(API_MESSAGES[key].request)}
    for_all = any(field.name == "error_code" for field in fields_of(API_MESSAGES[key].response))
    for right in rights:
        if right.field and fields[right.field].is_array:
            assert for_all or any(row.request[0] == right.field for row in ITEM_PATHS[key]) or key is ONE_FOR_ALL, right
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


@pytest.mark.parametrize("version", [3, 9, 12])
def test_what_is_allowed_of_a_produce_request_is_appended(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("secret")
        client = await plane.connect()
        request = produce(batch(b"x"))
        request.topic_data += produce(batch(b"x"), topic="secret").topic_data
        answer = await client.send(request, version)
        assert {one.name: one.partition_responses[0].error_code for one in answer.responses} == {
            "t": 0,
            "secret": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        }
        assert plane.partition().log.log_end_offset == 1

    guarded(Guard((AclOperation.WRITE, AclResourceType.TOPIC, "secret")), talk)


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


def test_an_empty_name_is_a_name() -> None:
    """Old consumers keep offsets under it; and who has open transactions is found by other than their names."""
    guard = Guard(
        (AclOperation.READ, AclResourceType.GROUP, ""),
        (AclOperation.DESCRIBE, AclResourceType.GROUP, ""),
        (AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, ""),
    )

    async def talk(plane: DataPlane) -> None:
        client = await plane.connect()
        await make_group_log(plane, client)
        places = [OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")]
        commit = OffsetCommitRequest(group_id="", topics=[OffsetCommitRequestTopic(name="t", partitions=places)])
        for version in (2, 8):
            answer = await client.send(commit, version)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        wanted = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        answer = await client.send(OffsetFetchRequest(group_id="", topics=wanted), 7)
        assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        answer = await client.send(FindCoordinatorRequest(key="", key_type=0), 3)
        assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        begin = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000)
        assert (await client.send(begin, 4)).error_code == refused
        answer = only_produced(await client.send(produce(batch(b"x"), transactional_id=""), 9))
        assert (answer.error_code, plane.partition().log.log_end_offset) == (refused, 0)
        groups = [OffsetFetchRequestGroup(group_id="g", topics=None)]
        answer = await client.send(OffsetFetchRequest(groups=groups), 8)
        assert answer.groups[0].error_code == 0, "in this version there is no other name"

    guarded(guard, talk)


def test_the_refusal_of_a_long_request_is_made_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = Guard((AclOperation.DESCRIBE, *CLUSTER))
    indexes = list(range(20_000))

    async def talk(plane: DataPlane) -> None:
        client = await plane.connect()
        beside: list[Any] = []
        submit = plane.state.ports.work.submit

        def submitted(lane: str, job: Any, done: Any) -> None:
            beside.append(getattr(job, "func", None))
            submit(lane, job, done)

        monkeypatch.setattr(plane.state.ports.work, "submit", submitted)
        topics = [ListPartitionReassignmentsTopics(name="t", partition_indexes=indexes)]
        answer = await client.send(ListPartitionReassignmentsRequest(topics=topics), 0)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert [one.partition_index for one in answer.topics[0].partitions] == indexes
        assert error_response in beside

    guarded(guard, talk)


def test_what_is_refused_of_a_long_request_is_found_in_turns_and_told_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tens of thousands of names: each is asked for, and each has an answer."""
    names = [f"secret-{number}" for number in range(20_000)]
    guard = Guard(*((AclOperation.DESCRIBE, AclResourceType.TOPIC, name) for name in names))

    async def talk(plane: DataPlane) -> None:
        client = await plane.connect()
        beside: list[Any] = []
        pieces: list[int] = []
        submit, complete = plane.state.ports.work.submit, SlicedWork.complete

        def submitted(lane: str, job: Any, done: Any) -> None:
            beside.append(getattr(job, "func", None))
            submit(lane, job, done)

        async def counted(work: SlicedWork, steps: Any) -> Any:
            def counting() -> Any:
                while True:
                    before = len(guard.asked)
                    try:
                        next(steps)
                    except StopIteration as end:
                        return end.value
                    finally:
                        pieces.append(len(guard.asked) - before)
                    yield

            return await complete(work, counting())

        monkeypatch.setattr(plane.state.ports.work, "submit", submitted)
        monkeypatch.setattr(SlicedWork, "complete", counted)
        wanted = [MetadataRequestTopic(name=name) for name in ("t", *names)]
        answer = await client.send(MetadataRequest(topics=wanted), 12)
        assert {topic.name: topic.error_code for topic in answer.topics} == {
            "t": 0,
            **dict.fromkeys(names, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        }
        assert sum(pieces) >= len(names)
        assert max(pieces) <= 2 * ITEMS_PER_TURN
        assert add_denied_items in beside

    guarded(guard, talk)


@pytest.mark.parametrize("version", range(14))
def test_everything_is_what_the_client_may_see(version: int) -> None:
    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("secret")
        client = await plane.connect()
        answer = await client.send(MetadataRequest(topics=[] if version == 0 else None), version)
        assert [topic.name for topic in answer.topics] == ["t"]
        answer = await client.send(MetadataRequest(topics=[MetadataRequestTopic(name="secret")]), version)
        assert answer.brokers, "without brokers clients take it for no answer"
        if version >= 12:
            disguised = MetadataRequestTopic(name="t", topic_id=plane.topic_id("secret"))
            answer = await client.send(MetadataRequest(topics=[disguised]), version)
            assert [topic.error_code for topic in answer.topics] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
            assert not answer.topics[0].partitions

    guarded(Guard((AclOperation.DESCRIBE, AclResourceType.TOPIC, "secret")), talk)


def test_pages_of_all_topics_tell_of_no_other() -> None:
    async def talk(plane: DataPlane) -> None:
        for name in ("a", "secret", "z"):
            await plane.create_topic(name)
        client = await plane.connect()
        seen, cursor = [], None
        for _ in range(3):
            request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=1, cursor=cursor)
            answer = await client.send(request, 0)
            seen += [topic.name for topic in answer.topics]
            cursor = answer.next_cursor and Cursor(
                topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
            )
        assert seen == ["a", "t", "t"] and cursor is not None and cursor.topic_name == "z"

    guarded(Guard((AclOperation.DESCRIBE, AclResourceType.TOPIC, "secret")), talk)


def test_a_topic_is_not_made_by_asking_for_it() -> None:
    refused = ((AclOperation.CREATE, AclResourceType.TOPIC, "new"), (AclOperation.CREATE, *CLUSTER))

    async def talk(plane: DataPlane) -> None:
        client = await plane.connect()
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ("new", "other")])
        answer = await client.send(wanted, 12)
        assert {topic.name: topic.error_code for topic in answer.topics} == {
            "new": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "other": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert "new" not in plane.state.metadata and "other" in plane.state.metadata

    guarded(Guard(*refused), talk)


def test_what_may_be_done_is_told_as_it_is() -> None:
    async def talk(plane: DataPlane) -> None:
        client = await plane.connect()
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name="t")],
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        )
        answer = await client.send(request, 10)
        operations = answer.topics[0].topic_authorized_operations
        assert operations & 1 << AclOperation.READ and not operations & 1 << AclOperation.WRITE
        assert not answer.cluster_authorized_operations & 1 << AclOperation.ALTER

    guarded(Guard((AclOperation.WRITE, AclResourceType.TOPIC, "t"), (AclOperation.ALTER, *CLUSTER)), talk)


@pytest.mark.parametrize("version", [6, 12, 18])
def test_a_fetch_session_is_asked_for_again_and_again(version: int) -> None:
    guard = Guard()

    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("u")
        for topic in ("t", "u"):
            await plane.append(batch(b"x"), topic=topic)
        client = await plane.connect()
        by_id = version >= 13

        async def ask(session: int, epoch: int) -> tuple[int, dict[str, int]]:
            topics = [
                FetchTopic(topic=name, topic_id=plane.topic_id(name), partitions=[at(0, 0)])
                for name in ("t", "u")
                if epoch <= 0
            ]
            request = FetchRequest(
                topics=topics, session_id=session, session_epoch=epoch, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20
            )
            answer = await client.send(request, version)
            names: dict[Any, str] = {plane.topic_id(name): name for name in ("t", "u")}
            return answer.session_id, {
                names[one.topic_id] if by_id else one.topic: part.error_code
                for one in answer.responses
                for part in one.partitions
            }

        guard.refused.add((AclOperation.READ, AclResourceType.TOPIC, "u"))
        session, codes = await ask(0, 0)
        assert codes == {"t": 0, "u": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        if version < 7:
            return
        _, codes = await ask(session, 1)
        assert codes["u"] == ErrorCode.TOPIC_AUTHORIZATION_FAILED, "for as long as it is so"
        guard.refused.clear()
        _, codes = await ask(session, 2)
        assert codes["u"] == 0
        guard.refused.add((AclOperation.READ, AclResourceType.TOPIC, "t"))
        _, codes = await ask(session, 3)
        assert codes["t"] == ErrorCode.TOPIC_AUTHORIZATION_FAILED, "a session outlives no right"

    guarded(guard, talk)


@pytest.mark.parametrize("version", [4, 12, 17])
def test_only_who_may_act_for_the_cluster_fetches_as_a_follower(version: int) -> None:
    """What is not committed is nobody else's business; who may needs no right to the topic."""
    guard = Guard((AclOperation.CLUSTER_ACTION, *CLUSTER))

    async def talk(plane: DataPlane) -> None:
        await plane.append(batch(b"x"))
        client = await plane.connect()
        follower: dict[str, Any] = {"replica_state": ReplicaState(replica_id=2)} if version >= 15 else {"replica_id": 2}
        topic: dict[str, Any] = {"topic_id": plane.topic_id()} if version >= 13 else {}
        request = fetch(at(0), max_bytes=1 << 20, **topic, **follower)
        answer = only_fetched(await client.send(request, version))
        assert (answer.error_code, answer.records or b"") == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"")
        guard.refused.clear()
        guard.refused.add((AclOperation.READ, AclResourceType.TOPIC, "t"))
        answer = only_fetched(await client.send(request, version))
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "it has no replica"

    guarded(guard, talk)


def test_where_epochs_end_is_told_to_who_may_describe_the_topic_or_act_for_the_cluster() -> None:
    describe, act = (AclOperation.DESCRIBE, AclResourceType.TOPIC, "t"), (AclOperation.CLUSTER_ACTION, *CLUSTER)
    guard = Guard()

    async def talk(plane: DataPlane) -> None:
        client = await plane.connect()
        wanted = OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])
        request = OffsetForLeaderEpochRequest(replica_id=2, topics=[wanted])
        for version in range(5):
            for refused, code in (
                ({describe}, 0),
                ({act}, 0),
                ({describe, act}, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            ):
                guard.refused = refused
                ((answer,),) = (topic.partitions for topic in (await client.send(request, version)).topics)
                assert answer.error_code == code, (version, refused)

    guarded(guard, talk)


def test_a_follower_that_may_not_follow_is_no_more_than_a_reader() -> None:
    guard = Guard((AclOperation.CLUSTER_ACTION, *CLUSTER))

    async def talk(plane: DataPlane) -> None:
        client = await plane.connect()
        await client.send(fetch(at(0), session_epoch=0), 12)
        for place in (1, 2):
            await client.send(fetch(at(0), session_epoch=0, replica_id=2), 12)
            (first, *_) = plane.state.fetch_sessions._sessions.values()
            assert (first.is_follower, len(plane.state.fetch_sessions)) == (place == 2, 1)
            guard.refused.clear()

    settings = {**PAGE_CACHE, "max.incremental.fetch.session.cache.slots": "1"}
    play(talk, settings=settings, authorizer=guard)


@pytest.mark.parametrize("version", [2, 7, 8, 9, 10])
def test_offsets_of_a_group_are_told_of_topics_that_may_be_seen(version: int) -> None:
    guard = Guard()

    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("secret")
        client = await plane.connect()
        await make_group_log(plane, client)
        places = [OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="m")]
        topics = [OffsetCommitRequestTopic(name=name, partitions=places) for name in ("t", "secret")]
        answer = await client.send(OffsetCommitRequest(group_id="g", topics=topics), 8)
        assert {topic.partitions[0].error_code for topic in answer.topics} == {0}
        guard.refused.add((AclOperation.DESCRIBE, AclResourceType.TOPIC, "secret"))
        names = {plane.topic_id(name): name for name in ("t", "secret")}
        for everything in (True, False):
            one: Any = [
                OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=[0])
                for topic_id, name in names.items()
            ]
            group = OffsetFetchRequestGroup(group_id="g", topics=None if everything else one)
            old = [OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in names.values()]
            asked = (
                OffsetFetchRequest(group_id="g", topics=None if everything else old)
                if version < 8
                else OffsetFetchRequest(groups=[group])
            )
            answer = await client.send(asked, version)
            found = {
                topic.name if version < 10 else names[topic.topic_id]: (part.error_code, part.committed_offset)
                for topic in (answer.topics if version < 8 else answer.groups[0].topics)
                for part in topic.partitions
            }
            refused = {} if everything else {"secret": (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)}
            assert found == {"t": (0, 7), **refused}

    guarded(guard, talk)


def test_a_group_tells_its_members_nothing_of_topics_that_they_may_not_see() -> None:
    guard = Guard((AclOperation.DESCRIBE, AclResourceType.TOPIC, "secret"))

    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("secret")
        client = await plane.connect()

        async def beat(*topics: str) -> Any:
            request = ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="m",
                member_epoch=0,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=list(topics),
                topic_partitions=[],
            )
            return await client.send(request, 1)

        await make_group_log(plane, client)
        assert (await beat("t", "secret")).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (await beat("t")).error_code == 0
        describe = ConsumerGroupDescribeRequest(group_ids=["g"])
        assert (await client.send(describe, 1)).groups[0].members
        guard.refused.add((AclOperation.DESCRIBE, AclResourceType.TOPIC, "t"))
        (described,) = (await client.send(describe, 1)).groups
        assert described.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and not described.members

    guarded(guard, talk)


def test_an_expression_means_no_topics_that_its_member_may_not_see() -> None:
    """By what it is assigned somebody could guess their names, letter by letter."""
    guard = Guard((AclOperation.DESCRIBE, AclResourceType.TOPIC, "secret"))

    async def talk(plane: DataPlane) -> None:
        await plane.create_topic("secret")
        client = await plane.connect()
        await make_group_log(plane, client)
        who: dict[str, Any] = {"group_id": "g", "member_id": "m"}

        def assigned(answer: Any) -> set[Any]:
            assert answer.error_code == 0
            return {one.topic_id for one in answer.assignment.topic_partitions} if answer.assignment else set()

        answer = await client.send(
            ConsumerGroupHeartbeatRequest(
                **who,
                member_epoch=0,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=[],
                subscribed_topic_regex="t|sec.*",
                topic_partitions=[],
            ),
            1,
        )

        async def until_assigned(answer: Any, topic: str, forbidden: str | None, seconds: float) -> Any:
            # The expression is resolved after the first heartbeat.
            deadline = plane.loop.time() + seconds
            while plane.topic_id(topic) not in assigned(answer):
                assert plane.loop.time() < deadline, f"{topic} was not assigned"
                await asyncio.sleep(5)
                answer = await client.send(ConsumerGroupHeartbeatRequest(**who, member_epoch=answer.member_epoch), 1)
                assert forbidden is None or plane.topic_id(forbidden) not in assigned(answer)
            return answer

        answer = await until_assigned(answer, "t", "secret", 60)
        guard.refused.clear()
        await until_assigned(answer, "secret", None, REGEX_LONGEST_MS / 1000 + 60)

    guarded(guard, talk)
