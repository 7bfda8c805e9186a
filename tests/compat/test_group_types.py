"""Groups of all types, listed, described and used by the wrong APIs: Apache Kafka 4.4.0 and Barnabas answer alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.barnabas_server import BarnabasServer
from tests.compat.answers import differences, plain
from tests.kafka import KafkaServer
from tests.server.config.config_client import ConfigClient
from tests.server_process import wait_until

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages import streams_group_heartbeat as streams
from barnabas.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(240)]

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.streams.initial.rebalance.delay.ms": "0"}
UNTOLD = {"throttle_time_ms", "host", "port", "topic_id", "member_id", "client_host"}
RETRIED = {14, 15, 16}
"""A coordinator that is not ready yet."""
DEADLINE_S = 60
SHARE_MEMBER = "m" * 22
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
GROUPS = ("classic", "consumer", "share", "streams", "simple", "none", "")
PROTOCOL = [JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)]
TOPOLOGY = streams.Topology(epoch=0, subtopologies=[streams.Subtopology(subtopology_id="0", source_topics=["t"])])

Calls = Iterator[tuple[str, ApiKey, int, Any]]


def join(group_id: str, member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=PROTOCOL,
    )


def consumer_heartbeat(group_id: str, epoch: int = 0) -> ConsumerGroupHeartbeatRequest:
    request = ConsumerGroupHeartbeatRequest(group_id=group_id, member_id="m", member_epoch=epoch)
    if not epoch:
        request.rebalance_timeout_ms, request.subscribed_topic_names, request.topic_partitions = 60_000, ["t"], []
    return request


def share_heartbeat(group_id: str, epoch: int = 0) -> ShareGroupHeartbeatRequest:
    topics = None if epoch else ["t"]
    return ShareGroupHeartbeatRequest(
        group_id=group_id, member_id=SHARE_MEMBER, member_epoch=epoch, subscribed_topic_names=topics
    )


def streams_heartbeat(group_id: str, epoch: int = 0) -> streams.StreamsGroupHeartbeatRequest:
    request = streams.StreamsGroupHeartbeatRequest(group_id=group_id, member_id="m", member_epoch=epoch)
    if not epoch:
        request.topology, request.process_id, request.rebalance_timeout_ms = TOPOLOGY, "p", 60_000
        request.active_tasks, request.standby_tasks, request.warmup_tasks, request.client_tags = [], [], [], []
    return request


def commit(group_id: str, epoch: int = -1, member_id: str = "") -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
    )


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ConfigClient, ConfigClient]]:
    """A client of Kafka and one of Barnabas, each with one stable group of every type."""
    folders: list[Path] = [tmp_path_factory.mktemp(name) for name in ("theirs", "ours")]
    with (
        KafkaServer(folders[0], properties=SETTINGS) as kafka,
        BarnabasServer(folders[1], properties=SETTINGS) as barnabas,
        closing(ConfigClient(kafka.bootstrap)) as theirs,
        closing(ConfigClient(barnabas.bootstrap)) as ours,
    ):
        for client in (theirs, ours):
            client.create_topic("t")
            make_groups(client)
        yield theirs, ours


def error_code(answer: Any) -> int:
    return int(answer.error_code)


def make_groups(client: ConfigClient) -> None:
    def served(key: ApiKey, version: int, request: Any, error_of: Callable[[Any], int] = error_code) -> Any:
        answer = client.call(key, version, request)

        def is_served() -> bool:
            nonlocal answer
            if error_of(answer) in RETRIED:
                answer = client.call(key, version, request)
            return error_of(answer) not in RETRIED

        wait_until(is_served, timeout_s=DEADLINE_S, interval_s=0.1, what=f"the coordinator for {key.name}")
        return answer

    # The request creates the topic of the groups.
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["classic"])
    served(ApiKey.FIND_COORDINATOR, 4, find, lambda answer: answer.coordinators[0].error_code)
    member_id = served(ApiKey.JOIN_GROUP, 9, join("classic")).member_id
    joined = client.call(ApiKey.JOIN_GROUP, 9, join("classic", member_id))
    assignment = SyncGroupRequestAssignment(member_id=member_id, assignment=bytes(10))
    client.call(
        ApiKey.SYNC_GROUP,
        5,
        SyncGroupRequest(
            group_id="classic",
            generation_id=joined.generation_id,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[assignment],
        ),
    )
    served(ApiKey.OFFSET_COMMIT, 9, commit("simple"), lambda answer: answer.topics[0].partitions[0].error_code)
    for key, heartbeat in (
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, consumer_heartbeat),
        (ApiKey.SHARE_GROUP_HEARTBEAT, share_heartbeat),
        (ApiKey.STREAMS_GROUP_HEARTBEAT, streams_heartbeat),
    ):
        group_id = key.name.partition("_")[0].lower()
        epoch = served(key, 1, heartbeat(group_id)).member_epoch
        settle(client, key, partial(heartbeat, group_id), epoch, {"consumer": 2, "share": 3, "streams": 2}[group_id])


def settle(client: ConfigClient, key: ApiKey, heartbeat: Callable[[int], Any], epoch: int, wanted: int) -> None:
    """Send heartbeats until the member has the last epoch of its group."""

    def is_settled() -> bool:
        nonlocal epoch
        answer = client.call(key, 1, heartbeat(epoch))
        assert not answer.error_code, answer.error_message
        epoch = answer.member_epoch
        return epoch == wanted

    wait_until(is_settled, timeout_s=DEADLINE_S, interval_s=0.1, what=f"epoch {wanted} by {key.name}")


def listings() -> Calls:
    for version in range(6):
        yield "all", ApiKey.LIST_GROUPS, version, ListGroupsRequest()
    states = ("Stable", "stable", "Empty", "Assigning", "NotReady", "not_ready", "Dead", "Reconciling", "Unknown", "")
    for state in states:
        yield state, ApiKey.LIST_GROUPS, 4, ListGroupsRequest(states_filter=[state])
        for kind in ("Classic", "consumer", "SHARE", "Streams", "other", ""):
            request = ListGroupsRequest(states_filter=[state], types_filter=[kind])
            yield f"{state} {kind}", ApiKey.LIST_GROUPS, 5, request
    for kinds in (["Classic"], ["share", "STREAMS"], ["consumer"], ["other"], [""]):
        yield f"{kinds}", ApiKey.LIST_GROUPS, 5, ListGroupsRequest(types_filter=kinds)


def descriptions(group_id: str) -> Calls:
    for version in range(7):
        yield "", ApiKey.DESCRIBE_GROUPS, version, DescribeGroupsRequest(groups=[group_id])
    for version in (0, 1):
        yield "", ApiKey.CONSUMER_GROUP_DESCRIBE, version, ConsumerGroupDescribeRequest(group_ids=[group_id])
        yield "", ApiKey.STREAMS_GROUP_DESCRIBE, version, StreamsGroupDescribeRequest(group_ids=[group_id])
        offsets = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
        request = DescribeShareGroupOffsetsRequest(groups=[offsets])
        yield "", ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, version, request
    yield "", ApiKey.SHARE_GROUP_DESCRIBE, 1, ShareGroupDescribeRequest(group_ids=[group_id])


def offsets(group_id: str) -> Calls:
    asked = OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])
    for version in (1, 5, 7):
        yield "", ApiKey.OFFSET_FETCH, version, OffsetFetchRequest(group_id=group_id, topics=[asked])
    some = [OffsetFetchRequestTopics(name=name, partition_indexes=[0, 5]) for name in ("t", "unknown")]
    for topics in (None, some):
        for epoch, member_id in ((-1, None), (1, "m"), (99, "m")):
            group = OffsetFetchRequestGroup(group_id=group_id, member_id=member_id, member_epoch=epoch, topics=topics)
            yield f"{epoch}", ApiKey.OFFSET_FETCH, 9, OffsetFetchRequest(groups=[group])
    for version in (2, 6, 8, 9):
        for epoch, member_id in ((1, "m"), (5, "x")):
            yield f"{epoch}", ApiKey.OFFSET_COMMIT, version, commit(group_id, epoch, member_id)
    deleted = OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=1)])
    yield "", ApiKey.OFFSET_DELETE, 0, OffsetDeleteRequest(group_id=group_id, topics=[deleted])


def members(group_id: str) -> Calls:
    for version in (0, 4):
        request = HeartbeatRequest(group_id=group_id, generation_id=1, member_id="m")
        yield "", ApiKey.HEARTBEAT, version, request
    yield "", ApiKey.LEAVE_GROUP, 0, LeaveGroupRequest(group_id=group_id, member_id="x")
    for version in (3, 5):
        leaving = LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id="x")])
        yield "", ApiKey.LEAVE_GROUP, version, leaving
    yield "", ApiKey.SYNC_GROUP, 5, SyncGroupRequest(group_id=group_id, generation_id=1, member_id="x")
    if group_id in ("share", "streams"):
        for version in (0, 5, 9):
            yield "", ApiKey.JOIN_GROUP, version, join(group_id)
    if group_id not in ("none", "simple"):
        for epoch in (0, 1):
            if group_id not in ("consumer", "classic"):
                yield f"{epoch}", ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, consumer_heartbeat(group_id, epoch)
            if group_id != "share":
                yield f"{epoch}", ApiKey.SHARE_GROUP_HEARTBEAT, 1, share_heartbeat(group_id, epoch)
            if group_id != "streams":
                yield f"{epoch}", ApiKey.STREAMS_GROUP_HEARTBEAT, 1, streams_heartbeat(group_id, epoch)


def changes(group_id: str) -> Calls:
    if group_id not in ("none", "simple"):
        partition = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
        altered = AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[partition])
        request = AlterShareGroupOffsetsRequest(group_id=group_id, topics=[altered])
        yield "", ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, request
        deleted = [DeleteShareGroupOffsetsRequestTopic(topic_name="t")]
        deletion = DeleteShareGroupOffsetsRequest(group_id=group_id, topics=deleted)
        yield "", ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, deletion
    if group_id != "simple":
        for version in (0, 2, 3):
            yield "", ApiKey.DELETE_GROUPS, version, DeleteGroupsRequest(groups_names=[group_id])


def compare(both: tuple[ConfigClient, ConfigClient], calls: Calls) -> None:
    found = []
    for what, key, version, request in calls:
        theirs, ours = (plain(client.call(key, version, request), UNTOLD) for client in both)
        found += [f"{key.name} {version} {what}: {one}" for one in differences(theirs, ours)]
    assert not found, "\n".join(found)


def test_lists_by_state_and_type(both: tuple[ConfigClient, ConfigClient]) -> None:
    compare(both, listings())


@pytest.mark.parametrize("group_id", GROUPS)
@pytest.mark.parametrize("calls", [descriptions, offsets, members, changes])
def test_apis_of_other_types(
    both: tuple[ConfigClient, ConfigClient], calls: Callable[[str], Calls], group_id: str
) -> None:
    compare(both, calls(group_id))
