"""What clients are told at the edges of a group's life, as Apache Kafka 4.1 tells them."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from soak.groups.consumer_members import consumers, describe
from soak.groups.members import GROUP, Cluster, Member, commit_request, play, subscription

from barnabas.protocol.codec import decode_versioned
from barnabas.protocol.coordinator_records import GroupMetadataValue
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.record_batch import iter_batches
from barnabas.server.coordinator import creation_limiter
from barnabas.server.coordinator.coordinator_topic import partition_for
from barnabas.server.coordinator.group.classic_group import ClassicGroupState
from barnabas.server.coordinator.group.group_records import group_metadata_key
from barnabas.server.metadata.topic_names import GROUP_METADATA_TOPIC

MINUTE_S = 60


async def enter(cluster: Cluster, **options: Any) -> Member:
    member = await cluster.member(**options)
    await member.enter()
    return member


def test_who_left_last_can_delete_the_group_at_once() -> None:
    async def talk(cluster: Cluster) -> None:
        for number in range(20):
            name = f"g{number}"
            member = await enter(cluster, group_id=name)
            # All three are sent before any is answered.
            leave = LeaveGroupRequest(group_id=name, members=[MemberIdentity(member_id=member.member_id)])
            listing = asyncio.ensure_future(member.connection.send(leave, 5))
            listed = asyncio.ensure_future(member.connection.send(ListGroupsRequest(), 5))
            deleted = asyncio.ensure_future(member.connection.send(DeleteGroupsRequest(groups_names=[name]), 2))
            assert (await listing).members[0].error_code == ErrorCode.NONE
            assert [one.group_state for one in (await listed).groups if one.group_id == name] == ["Empty"]
            assert (await deleted).results[0].error_code == ErrorCode.NONE

    play(talk)


def test_that_the_last_member_left_is_durable_when_it_is_told() -> None:
    async def talk(cluster: Cluster) -> None:
        members = [await cluster.member() for _ in range(2)]
        await members[0].find()
        await asyncio.gather(*(one.enter() for one in members))
        names = [MemberIdentity(member_id=one.member_id) for one in members]
        answer = await cluster.ask(LeaveGroupRequest(group_id=GROUP, members=[*names, names[0]]), 5)
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        assert [one.error_code for one in answer.members] == [ErrorCode.NONE, ErrorCode.NONE, unknown]
        await cluster.restart("power")
        group = cluster.group()
        assert group is not None and group.state is ClassicGroupState.EMPTY

    play(talk)


async def fetched(cluster: Cluster, version: int, member_id: str | None, epoch: int) -> tuple[int, int]:
    """The group's error and the offset of `t`-0 as OffsetFetch tells them to somebody who says who it is."""
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    if version >= 10:
        topic_id = cluster.state.metadata.topic_id("t")
        assert topic_id is not None
        topic.topic_id = topic_id
    wanted = OffsetFetchRequestGroup(group_id=GROUP, topics=[topic], member_id=member_id, member_epoch=epoch)
    (group,) = (await cluster.ask(OffsetFetchRequest(groups=[wanted]), version)).groups
    return group.error_code, group.topics[0].partitions[0].committed_offset if group.topics else -2


@pytest.mark.parametrize("version", [9, 10])
def test_offsets_of_a_classic_group_are_told_whoever_asks(version: int) -> None:
    async def talk(cluster: Cluster) -> None:
        assert await fetched(cluster, version, "nobody", 7) == (ErrorCode.NONE, -1)
        member = await enter(cluster)
        assert await member.commit(5) is ErrorCode.NONE
        for who, epoch in ((None, -1), ("", -1), ("nobody", 3), (member.member_id, 77), (member.member_id, 1)):
            assert await fetched(cluster, version, who, epoch) == (ErrorCode.NONE, 5)
        await member.leave()
        (newer,) = await consumers(cluster, "n")
        await newer.turn()
        assert await fetched(cluster, version, "nobody", 3) == (ErrorCode.UNKNOWN_MEMBER_ID, -2)
        assert await fetched(cluster, version, "n", 77) == (ErrorCode.STALE_MEMBER_EPOCH, -2)

    play(talk)


@pytest.mark.parametrize("stated", [0, 3, 99, -1])
def test_a_subscription_is_read_as_version_0_whatever_it_says(stated: int) -> None:
    async def talk(cluster: Cluster) -> None:
        await cluster.create_topic("u")
        await cluster.commit(1, topic="u")
        member = await cluster.member()
        member.metadata = struct.pack(">h", stated) + subscription("t")[2:] + b"what comes then is anybody's"
        await member.enter()
        await member.commit(5)
        partitions = [OffsetDeleteRequestPartition(partition_index=0)]
        topics = [OffsetDeleteRequestTopic(name=name, partitions=partitions) for name in ("t", "u")]
        answer = await cluster.ask(OffsetDeleteRequest(group_id=GROUP, topics=topics), 0)
        errors = [one.error_code for topic in answer.topics for one in topic.partitions]
        assert errors == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]

    play(talk)


def joining(member_id: str = "", protocol: str = "own", group_id: str = GROUP) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(name=protocol, metadata=subscription("t"))]
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=protocols,
    )


def test_which_refusal_to_join_names_the_member() -> None:
    async def talk(cluster: Cluster) -> None:
        async def refusal(request: JoinGroupRequest) -> tuple[ErrorCode, str]:
            answer = await cluster.ask(request, 9)
            return ErrorCode(answer.error_code), answer.member_id

        assert await refusal(joining("a")) == (ErrorCode.UNKNOWN_MEMBER_ID, "a")
        assert await refusal(joining("a", group_id="")) == (ErrorCode.INVALID_GROUP_ID, "a")
        member = await enter(cluster)
        assert await refusal(joining("a")) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "a")
        assert await refusal(joining(member.member_id)) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member.member_id)
        await member.leave()
        (newer,) = await consumers(cluster, "n")
        await newer.turn()
        classic = await cluster.member()
        assert await classic.join() is ErrorCode.NONE
        assert await refusal(joining("a")) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")

    play(talk)


def test_the_consumer_protocol_can_be_switched_off() -> None:
    async def talk(cluster: Cluster) -> None:
        beat = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id="m", rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
        )
        answer = await cluster.ask(beat, 1)
        assert (answer.error_code, answer.error_message) == (ErrorCode.UNSUPPORTED_VERSION, None)
        (described,) = (await cluster.ask(ConsumerGroupDescribeRequest(group_ids=[GROUP]), 1)).groups
        assert (described.error_code, described.error_message) == (ErrorCode.UNSUPPORTED_VERSION, None)
        assert (described.group_id, described.group_state) == (GROUP, "")

    play(talk, settings={"group.coordinator.rebalance.protocols": "classic"})


def test_features_are_told_as_kafka_tells_them() -> None:
    async def talk(cluster: Cluster) -> None:
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        levels = [("group.version", 1), ("transaction.version", 2), ("share.version", 2), ("streams.version", 1)]
        others = {"kraft.version", "eligible.leader.replicas.version"}
        for version, names in ((3, {"metadata.version"}), (4, {"metadata.version", *dict(levels), *others})):
            answer = await cluster.ask(request, version)
            assert {one.name for one in answer.supported_features} == names
            assert [(one.name, one.max_version_level) for one in answer.finalized_features] == levels

    play(talk)


def records_of(cluster: Cluster, group_id: str = GROUP) -> list[GroupMetadataValue | None]:
    """The group's records in `__consumer_offsets`, in their order."""
    index = partition_for(group_id, cluster.state.group_coordinator.group_manager.partition_count or 1)
    log = cluster.state.replica_manager.get_leader_partition(GROUP_METADATA_TOPIC, index).log
    records = [record for batch in iter_batches(log.read(0, 1 << 20).data) for record in batch.records()]
    return [
        None if record.value is None else decode_versioned(GroupMetadataValue, record.value)
        for record in records
        if bytes(record.key or b"") == group_metadata_key(group_id)
    ]


def test_a_group_begins_with_a_record_of_nobody() -> None:
    async def talk(cluster: Cluster) -> None:
        member = await cluster.member()
        answer = await member.join_once()
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        (first,) = records_of(cluster)
        assert first is not None and (first.protocol_type, first.generation, first.members) == ("", 0, [])
        assert (first.protocol, first.leader) == (None, None)
        assert first.current_state_timestamp == cluster.group().state_timestamp_ms  # type: ignore[union-attr]
        await cluster.restart()
        group = cluster.group()
        assert group is not None and group.state is ClassicGroupState.EMPTY and group.generation == 0
        await cluster.until(lambda: cluster.group() is None, seconds=11 * MINUTE_S)
        assert records_of(cluster)[-1] is None

    play(talk)


def test_a_group_that_nobody_came_to_leaves_the_log_with_the_id_that_was_given_out() -> None:
    async def talk(cluster: Cluster) -> None:
        await (await cluster.member()).join_once()
        await cluster.until(lambda: cluster.group() is None, seconds=11)
        assert [one is None for one in records_of(cluster)] == [False, True]

    play(talk)


def test_what_is_refused_leaves_no_group_or_not_for_long() -> None:
    async def talk(cluster: Cluster) -> None:
        nothing = joining(group_id="b")
        nothing.protocols = []
        assert (await cluster.ask(nothing, 9)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert [one is None for one in records_of(cluster, "b")] == [False], "as Kafka does"
        await cluster.until(lambda: cluster.group("b") is None, seconds=11 * MINUTE_S)
        assert await cluster.commit(1, topic="nowhere", version=8, group_id="c") == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]
        assert await cluster.commit(1, metadata="x" * 5000, group_id="d") == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
        assert [cluster.group(name) for name in "bcd"] == [None] * 3

    play(talk)


def test_a_client_that_has_made_all_groups_it_may_locks_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creation_limiter, "NAMES_PER_CLIENT", 30)

    async def talk(cluster: Cluster) -> None:
        greedy, other = await cluster.connect("greedy"), await cluster.connect("other")

        async def commit(connection: object, name: str) -> ErrorCode:
            request = commit_request(cluster, 8, 1, group_id=name)
            answer = await connection.send(request, 8)  # type: ignore[attr-defined]
            return ErrorCode(answer.topics[0].partitions[0].error_code)

        outcomes = [await commit(greedy, f"one-off-{number}") for number in range(40)]
        assert outcomes == [ErrorCode.NONE] * 30 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 10
        assert (await greedy.send(joining(group_id="one-more"), 3)).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert await commit(greedy, "one-off-7") is ErrorCode.NONE
        assert await commit(other, "mine") is ErrorCode.NONE
        member = await enter(cluster, group_id="ours")
        assert await member.commit(1) is ErrorCode.NONE
        assert (await greedy.send(DeleteGroupsRequest(groups_names=["one-off-3"]), 2)).results[0].error_code == 0
        assert await commit(greedy, "once-more") is ErrorCode.NONE
        await cluster.restart()
        assert await cluster.committed("one-off-7") == 1

    play(talk)


def test_groups_that_hold_nothing_go_when_their_maker_needs_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creation_limiter, "NAMES_PER_CLIENT", 5)

    async def talk(cluster: Cluster) -> None:
        for number in range(40):
            member = await enter(cluster, group_id=f"g{number}")
            assert await member.leave() is ErrorCode.NONE
            member.vanish()
        left = [one.group_id for one in (await cluster.ask(ListGroupsRequest(), 4)).groups]
        assert "g39" in left and len(left) <= 5

    play(talk)


def test_a_groups_way_into_the_consumer_protocol_and_back_is_described() -> None:
    async def talk(cluster: Cluster) -> None:
        member = await enter(cluster)
        await member.leave()
        (newer,) = await consumers(cluster, "n")
        await newer.turn()
        assert (await describe(cluster)).group_state == "Stable"
        await newer.leave()
        classic = await enter(cluster)
        assert classic.generation == 1 and records_of(cluster)[-2].generation == 0  # type: ignore[union-attr]

    play(talk)


def test_no_name_makes_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "barnabas")
    forged = "\n2027-01-01 ERROR the disk is full"

    async def talk(cluster: Cluster) -> None:
        for instance_id in (None, f"i{forged}"):
            member = Member(cluster, group_id=f"g{forged}", instance_id=instance_id)
            member._connection = await cluster.connect(f"c{forged}")
            await member.enter()
            await member.leave()
        (newer,) = await consumers(cluster, f"m{forged}", group_id=f"g{forged}")
        await newer.turn()
        await newer.leave()
        assert cluster.group(f"g{forged}") is not None

    play(talk)
    assert any("generation 1" in record.getMessage() for record in caplog.records)
    assert not [line for record in caplog.records if "\n" in (line := record.getMessage())]
