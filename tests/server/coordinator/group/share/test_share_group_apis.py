"""The APIs of share groups over the wire of a whole broker: members, operators, restarts, other types of groups."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from soak.groups.members import GROUP, Cluster, play

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
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
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponseGroup,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.protocol.messages.share_group_describe import DescribedGroup, ShareGroupDescribeRequest
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from barnabas.simulation.cluster import ClusterWorld
from barnabas.simulation.loop import SimLoop, run


async def beat(
    cluster: Cluster, member_id: str, epoch: int, topics: list[str] | None = None, group_id: str = GROUP
) -> ShareGroupHeartbeatResponse:
    request = ShareGroupHeartbeatRequest(
        group_id=group_id, member_id=member_id, member_epoch=epoch, subscribed_topic_names=topics
    )
    response: ShareGroupHeartbeatResponse = await cluster.ask(request, 1)
    return response


async def join(cluster: Cluster, member_id: str = "a", topics: list[str] | None = None) -> int:
    """Join and beat until the member has partitions; returns its epoch."""
    await cluster.ask(FindCoordinatorRequest(key=GROUP), 2)
    response = await beat(cluster, member_id, 0, topics or ["t"])
    assert response.error_code == ErrorCode.NONE, response
    for _ in range(100):
        await asyncio.sleep(1)
        response = await beat(cluster, member_id, response.member_epoch)
        assert response.error_code == ErrorCode.NONE, response
        if response.assignment is not None and response.assignment.topic_partitions:
            return response.member_epoch
    raise AssertionError("no partitions")


async def describe(cluster: Cluster, group_id: str = GROUP) -> DescribedGroup:
    (group,) = (await cluster.ask(ShareGroupDescribeRequest(group_ids=[group_id]), 1)).groups
    return group


async def offsets(
    cluster: Cluster, topics: list[DescribeShareGroupOffsetsRequestTopic] | None = None, version: int = 1
) -> DescribeShareGroupOffsetsResponseGroup:
    wanted = DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=topics)
    (group,) = (await cluster.ask(DescribeShareGroupOffsetsRequest(groups=[wanted]), version)).groups
    return group


def start_offsets(group: DescribeShareGroupOffsetsResponseGroup) -> dict[tuple[str, int], int]:
    return {
        (topic.topic_name, one.partition_index): one.start_offset for topic in group.topics for one in topic.partitions
    }


def alteration(*places: tuple[str, int, int]) -> AlterShareGroupOffsetsRequest:
    return AlterShareGroupOffsetsRequest(
        group_id=GROUP,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)],
            )
            for name, index, offset in places
        ],
    )


def errors(response: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.topic_name, one.partition_index): one.error_code
        for topic in response.responses
        for one in topic.partitions
    }


def test_a_member_lives_through_restarts_and_the_group_is_described_and_deleted() -> None:
    async def talk(cluster: Cluster) -> None:
        epoch = await join(cluster)
        described = await describe(cluster)
        assert (described.group_state, described.assignor_name) == ("Stable", "simple")
        assert described.group_epoch == described.assignment_epoch == epoch
        (member,) = described.members
        assert (member.member_id, member.member_epoch, member.subscribed_topic_names) == ("a", epoch, ["t"])
        (assigned,) = member.assignment.topic_partitions
        assert (assigned.topic_name, assigned.partitions) == ("t", [0, 1])
        for how in ("kill", "stop"):
            await cluster.restart(how)
            assert (await beat(cluster, "a", epoch)).error_code == ErrorCode.NONE
            assert await describe(cluster) == described
        assert start_offsets(await offsets(cluster)) == {("t", 0): -1, ("t", 1): -1}
        (deleted,) = (await cluster.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2)).results
        assert deleted.error_code == ErrorCode.NON_EMPTY_GROUP
        assert (await beat(cluster, "a", -1)).member_epoch == -1
        assert (await describe(cluster)).group_state == "Empty"
        await cluster.restart("kill")
        (deleted,) = (await cluster.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2)).results
        assert deleted.error_code == ErrorCode.NONE
        assert (await describe(cluster)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        await cluster.restart("kill")
        assert (await describe(cluster)).error_code == ErrorCode.GROUP_ID_NOT_FOUND

    play(talk)


def test_start_offsets_are_altered_described_and_deleted() -> None:
    async def talk(cluster: Cluster) -> None:
        await cluster.ask(FindCoordinatorRequest(key=GROUP), 2)
        response = await cluster.ask(alteration(("t", 0, 3), ("t", 7, 1), ("gone", 0, 1), ("t", 1, -2)), 0)
        assert response.error_code == ErrorCode.NONE
        assert errors(response) == {
            ("t", 0): ErrorCode.NONE,
            ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("t", 1): ErrorCode.INVALID_REQUEST,
        }
        for how in ("kill", "stop"):
            assert start_offsets(await offsets(cluster)) == {("t", 0): 3}
            await cluster.restart(how)
        wanted = [
            DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[0, 1]),
            DescribeShareGroupOffsetsRequestTopic(topic_name="gone", partitions=[0]),
        ]
        assert start_offsets(await offsets(cluster, wanted)) == {("t", 0): 3, ("t", 1): -1, ("gone", 0): -1}
        (topic,) = (await offsets(cluster, wanted[:1])).topics
        assert topic.partitions[0].lag == -3  # the log has no records
        assert [one.lag for one in (await offsets(cluster, wanted[:1], version=0)).topics[0].partitions] == [-1, -1]
        deletion = DeleteShareGroupOffsetsRequest(
            group_id=GROUP,
            topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in ("t", "gone", "t")],
        )
        response = await cluster.ask(deletion, 0)
        codes = {topic.topic_name: topic.error_code for topic in response.responses}
        assert codes == {"t": ErrorCode.NONE, "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        await cluster.restart("kill")
        assert start_offsets(await offsets(cluster)) == {}
        await join(cluster)
        assert (await cluster.ask(alteration(("t", 0, 3)), 0)).error_code == ErrorCode.NON_EMPTY_GROUP
        assert (await cluster.ask(deletion, 0)).error_code == ErrorCode.NON_EMPTY_GROUP

    play(talk)


def test_types_of_groups_do_not_mix() -> None:
    async def talk(cluster: Cluster) -> None:
        await join(cluster)
        listed = (await cluster.ask(ListGroupsRequest(types_filter=["Share"], states_filter=["stable"]), 5)).groups
        (group,) = listed
        assert (group.group_id, group.protocol_type, group.group_state, group.group_type) == (
            GROUP,
            "share",
            "Stable",
            "share",
        )
        assert (await cluster.ask(ListGroupsRequest(types_filter=["consumer", "classic"]), 5)).groups == []
        joining = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        assert (await cluster.ask(joining, 9)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        consumer = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id="c",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        assert (await cluster.ask(consumer, 1)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert await cluster.commit(3) == [ErrorCode.GROUP_ID_NOT_FOUND]
        deleted = OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        deletion = await cluster.ask(OffsetDeleteRequest(group_id=GROUP, topics=[deleted]), 0)
        assert (deletion.error_code, deletion.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
        fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
        (fetched,) = (await cluster.ask(fetch, 8)).groups
        assert (fetched.error_code, fetched.topics) == (ErrorCode.NONE, [])
        (described,) = (await cluster.ask(DescribeGroupsRequest(groups=[GROUP]), 6)).groups
        assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        other = await cluster.member(group_id="classic")
        await cluster.ask(FindCoordinatorRequest(key="classic"), 2)
        assert await other.join() is not None
        assert (await beat(cluster, "a", 0, ["t"], "classic")).error_code == ErrorCode.GROUP_ID_NOT_FOUND

    play(talk)


@pytest.mark.parametrize(("protocol", "is_served"), [("2.7", False), ("2.8", True)])
def test_share_groups_require_topic_ids(protocol: str, *, is_served: bool) -> None:
    """A cluster with ZooKeeper can have brokers that do not support topic ids."""

    async def main(loop: SimLoop) -> None:
        world = ClusterWorld(loop, 7, settings={"inter.broker.protocol.version": protocol}, brokers_count=1)
        await world.brokers[1].start()
        assert world.brokers[1].server is not None
        state = world.brokers[1].server.state
        assert state.group_coordinator.share_group_manager.are_served is is_served
        assert state.share_partition_manager.is_enabled is is_served
        await world.brokers[1].stop()

    run(main, 7)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_topic_that_is_deleted_disappears_from_the_group(how: str) -> None:
    async def talk(cluster: Cluster) -> None:
        await cluster.create_topic("u", 1)
        await join(cluster, topics=["t", "u"])
        await cluster.until(lambda: len(_initialized(cluster)) == 2)
        await cluster.delete_topic("u")
        await cluster.until(lambda: len(_initialized(cluster)) == 1)
        await cluster.restart(how)
        assert len(_initialized(cluster)) == 1
        assert set(start_offsets(await offsets(cluster))) == {("t", 0), ("t", 1)}

    play(talk)


def _initialized(cluster: Cluster) -> dict[Any, Any]:
    group: Any = cluster.group()
    return dict(group.state_partitions.initialized)
