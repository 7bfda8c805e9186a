"""Members of the streams protocol join, leave, crash and return, over the wire of a whole broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from soak.groups.consumer_members import consumers
from soak.groups.members import Cluster, commit_request, play
from soak.groups.streams_members import (
    APPLICATION,
    SETTINGS,
    StreamsMember,
    describe_streams,
    settle,
    streams_group,
    streams_members,
    topology,
)

from barnabas.common.steps import run_to_end
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    Subtopology,
    TaskOffset,
    TopicInfo,
    Topology,
)
from barnabas.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from barnabas.server.coordinator.group.modern_group_change import LAST_EPOCH
from barnabas.server.coordinator.group.streams import streams_group_manager
from barnabas.server.coordinator.group.streams.streams_group import StreamsGroup, StreamsGroupState
from barnabas.server.coordinator.group.streams.streams_group_change import StreamsGroupChange
from barnabas.server.coordinator.group.streams.streams_group_member import StreamsGroupMember
from barnabas.server.coordinator.group.streams.streams_heartbeat import (
    MAX_COPARTITIONS,
    MAX_TOPIC_CONFIGS,
    MemberTaskOffsets,
    StreamsHeartbeat,
)
from barnabas.server.coordinator.group.streams.topics.topic_configuration_error import Status

BOTH = {("0", 0), ("0", 1)}


def streams_heartbeat(member: StreamsMember) -> StreamsHeartbeat:
    """Return a heartbeat of a member without changes."""
    return StreamsHeartbeat(
        group_id=member.group_id,
        member_id=member.member_id,
        epoch=member.epoch,
        endpoint_information_epoch=member.endpoint_epoch,
        instance_id=None,
        rack_id=None,
        rebalance_timeout_ms=-1,
        topology=None,
        topology_value=b"",
        owned=None,
        process_id=None,
        user_endpoint=None,
        client_tags=None,
        task_offsets=None,
        task_end_offsets=None,
        shutdown_application=False,
        client_id="",
        client_host="",
        version=1,
    )


STANDBYS = {**SETTINGS, "group.streams.num.standby.replicas": "1"}


def test_the_first_member_creates_the_topics_and_gets_all_tasks() -> None:
    async def talk(cluster: Cluster) -> None:
        (member,) = await streams_members(cluster, "a")
        assert await member.turn() is ErrorCode.NONE
        assert member.statuses == {Status.MISSING_INTERNAL_TOPICS: "Internal topics are missing: app-log"}
        assert streams_group(cluster).state is StreamsGroupState.NOT_READY and member.active == set()
        await cluster.until(lambda: cluster.state.metadata.topic("app-log") is not None)
        image = cluster.state.metadata.topic("app-log")
        assert image is not None and len(image.partitions) == 2
        assert cluster.state.dynamic_config.topic_config("app-log") == {"cleanup.policy": "compact"}
        assert await member.turn() is ErrorCode.NONE
        assert member.statuses == {} and member.active == BOTH
        assert streams_group(cluster).state is StreamsGroupState.STABLE

    play(talk, settings=SETTINGS)


def test_an_active_task_moves_after_its_member_has_revoked_it() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await streams_members(cluster, "a", "b")
        await settle(first)
        assert await second.turn() is ErrorCode.NONE and second.active == set()
        assert await first.beat() is ErrorCode.NONE and len(first.granted[0]) == 1
        epoch = first.epoch
        assert await second.turn() is ErrorCode.NONE and second.active == set()  # the first has not revoked it yet
        assert streams_group(cluster).state is StreamsGroupState.RECONCILING
        assert first.let_go() and await first.beat() is ErrorCode.NONE and first.epoch > epoch
        assert await second.turn() is ErrorCode.NONE
        assert len(first.active) == len(second.active) == 1 and first.active | second.active == BOTH
        assert streams_group(cluster).state is StreamsGroupState.STABLE

    play(talk, settings=SETTINGS)


def test_standby_tasks_are_at_the_other_process_and_become_active() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await streams_members(cluster, "a", "b")
        await settle(first, second)
        assert first.standby == second.active and second.standby == first.active
        assert await second.leave() is ErrorCode.NONE
        await settle(first)
        assert first.active == BOTH and first.standby == set()

    play(talk, settings=STANDBYS)


def test_threads_of_one_process_never_share_a_task() -> None:
    async def talk(cluster: Cluster) -> None:
        threads = [await StreamsMember(cluster, name, process="p").connect() for name in "ab"]
        await settle(*threads)
        assert all(not thread.standby for thread in threads)

    play(talk, settings=STANDBYS)


def test_the_group_waits_for_members_before_its_first_assignment() -> None:
    async def talk(cluster: Cluster) -> None:
        await cluster.create_topic("app-log", 2)
        first, second = await streams_members(cluster, "a", "b")
        assert await first.turn() is ErrorCode.NONE and await second.turn() is ErrorCode.NONE
        assert Status.ASSIGNMENT_DELAYED in first.statuses and first.active == second.active == set()
        assert (first.epoch, streams_group(cluster).state) == (1, StreamsGroupState.ASSIGNING)
        await asyncio.sleep(3.1)
        await first.turn()
        await second.turn()
        assert len(first.active) == len(second.active) == 1

    play(talk)


def test_a_heartbeat_that_fails_inside_the_broker_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await streams_members(cluster, "a", "b")
        await settle(first)
        group = streams_group(cluster)
        epochs = group.epoch, group.assignment_epoch
        with monkeypatch.context() as patch:
            patch.setattr(streams_group_manager, "build_current_assignment", fail)
            assert await second.beat() is ErrorCode.UNKNOWN_SERVER_ERROR
        assert (group.epoch, group.assignment_epoch) == epochs and set(group.members) == {"a"}
        await settle(first, second)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("planted")

    play(talk, settings=SETTINGS)


def test_assignments_are_an_interval_apart() -> None:
    async def talk(cluster: Cluster) -> None:
        await cluster.create_topic("app-log", 2)
        first, second = await streams_members(cluster, "a", "b")
        assert await first.turn() is ErrorCode.NONE and first.active == BOTH
        assert await second.turn() is ErrorCode.NONE
        detail = "Assignment delayed due to the configured assignment interval."
        assert second.statuses == {Status.ASSIGNMENT_DELAYED: detail}
        await asyncio.sleep(1.1)
        await settle(first, second)

    play(talk, settings={"group.streams.initial.rebalance.delay.ms": "0"})


def one_subtopology(**lists: Any) -> Topology:
    return Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=["t"], **lists)])


def fixed(name: str) -> TopicInfo:
    return TopicInfo(name=name, partitions=9000)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topology": None}, ErrorCode.INVALID_REQUEST),
        ({"active_tasks": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3, "topology": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2, "topology": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 1}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 1, "topology": None}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1, "topology": None}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"topology": topology("__consumer_offsets")}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        ({"topology": topology("a b")}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        ({"topology": topology(epoch=-1)}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        (
            {"topology": Topology(subtopologies=[Subtopology(subtopology_id="0", source_topic_regex=["t.*"])])},
            ErrorCode.INVALID_REQUEST,
        ),
        (
            {"topology": Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=["t"])] * 2)},
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        ({"topology": Topology(subtopologies=[Subtopology(subtopology_id="0")])}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        (
            {
                "topology": Topology(
                    subtopologies=[
                        Subtopology(
                            subtopology_id="0",
                            source_topics=["t"],
                            copartition_groups=[CopartitionGroup(source_topics=[1])],
                        )
                    ]
                )
            },
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        (
            {
                "topology": Topology(
                    subtopologies=[
                        Subtopology(
                            subtopology_id="0",
                            source_topics=["t"],
                            state_changelog_topics=[TopicInfo(name="log", partitions=2)],
                        )
                    ]
                )
            },
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        (
            {"task_offsets": [TaskOffset(subtopology_id="0", partition=0, offset=1)] * 2},
            ErrorCode.INVALID_REQUEST,
        ),
        (
            {"topology": one_subtopology(repartition_source_topics=[fixed(f"r{number}") for number in range(6)])},
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        (
            {"topology": one_subtopology(copartition_groups=[CopartitionGroup()] * (MAX_COPARTITIONS + 1))},
            ErrorCode.INVALID_REQUEST,
        ),
        (
            {
                "topology": one_subtopology(
                    copartition_groups=[CopartitionGroup(source_topics=[0] * 100)] * (MAX_COPARTITIONS // 100)
                )
            },
            ErrorCode.INVALID_REQUEST,
        ),
        (
            {
                "topology": one_subtopology(
                    state_changelog_topics=[
                        TopicInfo(name="log", topic_configs=[KeyValue(key="a", value="b")] * (MAX_TOPIC_CONFIGS + 1))
                    ]
                )
            },
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_invalid_heartbeats_are_refused(fields: dict[str, Any], code: ErrorCode) -> None:
    async def talk(cluster: Cluster) -> None:
        (member,) = await streams_members(cluster, "a")
        answer = await member.send(**{**member.joining_fields(), **fields})
        assert answer.error_code == code and answer.error_message
        assert cluster.group(APPLICATION) is None

    play(talk, settings=SETTINGS)


def test_a_group_of_another_type_has_no_streams_members() -> None:
    async def talk(cluster: Cluster) -> None:
        (consumer,) = await consumers(cluster, "c", group_id=APPLICATION)
        await consumer.turn()
        (member,) = await streams_members(cluster, "a")
        answer = await member.send(**member.joining_fields())
        assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert answer.error_message == "Group app is not a streams group."

    play(talk, settings=SETTINGS)


def test_consumers_cannot_join_a_streams_group() -> None:
    async def talk(cluster: Cluster) -> None:
        (member,) = await streams_members(cluster, "a")
        await member.turn()
        (consumer,) = await consumers(cluster, "c", group_id=APPLICATION)
        assert await consumer.beat() is ErrorCode.GROUP_ID_NOT_FOUND
        classic = await cluster.member(group_id=APPLICATION)
        assert (await classic.join_once()).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert await member.leave() is ErrorCode.NONE
        assert (await classic.join_once()).error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)
        found = cluster.group(APPLICATION)
        assert found is not None and found.type.value == "classic"

    play(talk, settings=SETTINGS)


def test_an_empty_classic_group_becomes_a_streams_group_with_its_offsets() -> None:
    async def talk(cluster: Cluster) -> None:
        await cluster.commit(5, group_id=APPLICATION)
        (member,) = await streams_members(cluster, "a")
        await settle(member)
        assert await cluster.committed(APPLICATION) == 5
        await cluster.restart()
        assert await cluster.committed(APPLICATION) == 5
        assert streams_group(cluster).members.keys() == {"a"}

    play(talk, settings=SETTINGS)


def test_the_topology_of_a_group_does_not_change() -> None:
    async def talk(cluster: Cluster) -> None:
        first, other = await streams_members(cluster, "a", "b")
        first.topology = topology(epoch=1)
        await settle(first)
        answer = await other.send(**{**other.joining_fields(), "topology": topology("u", epoch=1)})
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert answer.error_message == "Topology updates are not supported yet."
        assert await other.beat() is ErrorCode.NONE
        assert other.statuses[Status.STALE_TOPOLOGY] == (
            "The member's topology epoch 0 is older than the group's topology epoch 1."
        )

    play(talk, settings=SETTINGS)


def test_missing_and_differently_partitioned_topics_are_reported() -> None:
    async def talk(cluster: Cluster) -> None:
        joined = Subtopology(
            subtopology_id="0", source_topics=["t", "u"], copartition_groups=[CopartitionGroup(source_topics=[0, 1])]
        )
        (member,) = await streams_members(cluster, "a", with_topology=Topology(subtopologies=[joined]))
        await member.turn()
        assert member.statuses == {Status.MISSING_SOURCE_TOPICS: "Source topics u are missing."}
        await cluster.create_topic("u", 3)
        await member.turn()
        detail = "Following topics do not have the same number of partitions: [{t=2, u=3}]"
        assert member.statuses == {Status.INCORRECTLY_PARTITIONED_TOPICS: detail}
        assert streams_group(cluster).state is StreamsGroupState.NOT_READY

    play(talk, settings=SETTINGS)


def test_tasks_are_revoked_when_a_source_topic_is_deleted() -> None:
    async def talk(cluster: Cluster) -> None:
        (member,) = await streams_members(cluster, "a")
        await settle(member)
        await cluster.delete_topic("t")
        await member.turn()
        assert member.active == set() and member.statuses == {
            Status.MISSING_SOURCE_TOPICS: "Source topics t are missing."
        }

    play(talk, settings=SETTINGS)


def test_a_member_with_another_epoch_is_fenced() -> None:
    async def talk(cluster: Cluster) -> None:
        (member,) = await streams_members(cluster, "a")
        await settle(member)
        for epoch in (member.epoch + 1, member.epoch - 1):
            answer = await member.send(member_epoch=epoch)
            assert answer.error_code == ErrorCode.FENCED_MEMBER_EPOCH
        member.fenced()
        await settle(member)
        assert member.active == BOTH

    play(talk, settings=SETTINGS)


def test_a_heartbeat_may_be_repeated_after_its_response_was_lost() -> None:
    async def talk(cluster: Cluster) -> None:
        await cluster.create_topic("app-log", 2)
        (member,) = await streams_members(cluster, "a")
        joining = member.joining_fields()
        lost, again = await member.send(**joining), await member.send(**joining)
        assert (lost.member_epoch, lost.active_tasks) == (again.member_epoch, again.active_tasks)
        await member.turn()
        (second,) = await streams_members(cluster, "b")
        await second.turn()
        await member.turn()
        await second.turn()
        # The response with the task of the second member is lost: it reports that it has none, in its former epoch.
        group = streams_group(cluster)
        former = group.members["b"].previous_epoch
        nothing: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
        answer = await second.send(member_epoch=group.members["b"].epoch, **nothing)
        assert answer.active_tasks is not None and len(answer.active_tasks[0].partitions) == 1
        if former != group.members["b"].epoch:
            answer = await second.send(member_epoch=former, **nothing)
            assert answer.error_code == ErrorCode.NONE and answer.active_tasks

    play(talk, settings=SETTINGS)


def test_a_static_member_returns_with_another_id() -> None:
    async def talk(cluster: Cluster) -> None:
        (first,) = await streams_members(cluster, "a", instance_id="i", process="p")
        (second,) = await streams_members(cluster, "b")
        await settle(first, second)
        had, epoch = set(first.active), streams_group(cluster).epoch
        (again,) = await streams_members(cluster, "c", instance_id="i", process="p")
        assert await again.beat() is ErrorCode.UNRELEASED_INSTANCE_ID
        assert await first.leave(-2) is ErrorCode.NONE
        await again.turn()
        assert again.active == had and streams_group(cluster).epoch == epoch
        answer = await first.send(member_epoch=1)
        assert answer.error_code == ErrorCode.FENCED_INSTANCE_ID

    play(talk, settings=SETTINGS)


def test_members_that_vanish_or_do_not_revoke_are_removed() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await streams_members(cluster, "a", "b", rebalance_ms=10_000)
        await settle(first)
        await second.turn()
        await first.beat()  # the broker requests a task of the first member, which does not revoke it
        for _ in range(12):
            await asyncio.sleep(1)
            await second.turn()
            code = await first.beat()
        assert code is ErrorCode.UNKNOWN_MEMBER_ID and second.active == BOTH
        second.vanish()
        await asyncio.sleep(46)
        assert streams_group(cluster).state is StreamsGroupState.EMPTY

    play(talk, settings=SETTINGS)


def test_a_restart_keeps_the_group() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await streams_members(cluster, "a", "b")
        await settle(first)
        await second.turn()
        await first.beat()
        for _ in range(2):
            before = streams_group(cluster)
            await cluster.restart()
            after = streams_group(cluster)
            assert after is not before and after.members == before.members and after.targets == before.targets
            assert after.topology == before.topology and after.epoch == before.epoch
            assert after.last_assignment_configs == before.last_assignment_configs
            assert (after.assignment_epoch, after.assignment_timestamp_ms, after.validated_topology_epoch) == (
                before.assignment_epoch,
                before.assignment_timestamp_ms,
                before.validated_topology_epoch,
            )
            for member in (first, second):
                await member.connect()
            await settle(first, second)
        assert first.active | second.active == BOTH and len(first.active) == 1

    play(talk, settings=STANDBYS)


def test_a_shutdown_is_reported_to_all_members_until_the_group_is_empty() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await streams_members(cluster, "a", "b")
        await settle(first, second)
        assert await first.beat(shutdown_application=True) is ErrorCode.NONE
        await second.beat()
        assert second.statuses == {
            Status.SHUTDOWN_APPLICATION: "Streams group member a encountered a fatal error and requested a shutdown "
            "for the entire application."
        }
        await first.leave()
        await second.leave()
        await settle(first)
        assert first.statuses == {}

    play(talk, settings=SETTINGS)


def test_members_get_the_endpoints_of_all_instances_when_these_change() -> None:
    async def talk(cluster: Cluster) -> None:
        (first,) = await streams_members(cluster, "a", endpoint=Endpoint(host="x", port=1))
        (second,) = await streams_members(cluster, "b", endpoint=Endpoint(host="y", port=2))
        await settle(first, second)
        await first.beat()
        await second.beat()
        answer = await second.send(endpoint_information_epoch=-1)
        assert answer.partitions_by_user_endpoint is not None
        found = {
            one.user_endpoint.host: {(topic.topic, *topic.partitions) for topic in one.active_partitions}
            for one in answer.partitions_by_user_endpoint
        }
        assert found.keys() == {"x", "y"} and found["x"] | found["y"] == {("t", 0), ("t", 1)}
        assert (await second.send()).partitions_by_user_endpoint is None

    play(talk, settings=SETTINGS)


def test_required_client_tags_are_reported_to_newer_members() -> None:
    async def talk(cluster: Cluster) -> None:
        (member,) = await streams_members(cluster, "a")
        await settle(member)
        await member.beat()
        assert member.statuses == {
            Status.MISSING_CLIENT_TAGS: "Missing required client tags for rack-aware standby assignment: [zone, rack]. "
            "Configure them via 'client.tag.<tagKey>' in your Streams config."
        }
        assert (await member.send(version=0)).status == []

    play(talk, settings={**SETTINGS, "group.streams.rack.aware.assignment.tags": "zone,rack"})


def test_a_setting_of_the_group_changes_the_assignment() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await streams_members(cluster, "a", "b")
        await settle(first, second)
        assert not first.standby
        config = AlterableConfig(name="streams.num.standby.replicas", config_operation=0, value="1")
        resource = AlterConfigsResource(resource_type=32, resource_name=APPLICATION, configs=[config])
        response = await cluster.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert response.responses[0].error_code == ErrorCode.NONE
        await first.turn()
        await settle(first, second)
        assert first.standby == second.active
        assert streams_group(cluster).last_assignment_configs == {"num.standby.replicas": "1"}

    play(talk, settings=SETTINGS)


def test_offsets_are_committed_in_epochs_from_the_assignment_of_the_task() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await streams_members(cluster, "a", "b")
        await settle(first)
        early = first.epoch
        options: dict[str, Any] = {"group_id": APPLICATION, "member_id": "a"}

        async def commit(generation: int, **more: Any) -> ErrorCode:
            request = commit_request(cluster, 9, 3, generation=generation, **{**options, **more})
            response = await cluster.ask(request, 9)
            return ErrorCode(response.topics[0].partitions[0].error_code)

        await settle(first, second)
        kept = next(iter(first.active))[1]
        lost = 1 - kept
        assert first.epoch > early
        assert await commit(early, partition=kept) is ErrorCode.NONE
        assert await commit(first.epoch, partition=kept) is ErrorCode.NONE
        assert await commit(early, partition=lost) is ErrorCode.STALE_MEMBER_EPOCH
        assert await commit(first.epoch + 1, partition=kept) is ErrorCode.STALE_MEMBER_EPOCH
        assert await commit(second.epoch - 1, partition=lost, member_id="b") is ErrorCode.STALE_MEMBER_EPOCH
        assert await commit(first.epoch, partition=kept, member_id="x") is ErrorCode.UNKNOWN_MEMBER_ID
        assert await cluster.commit(3, 8, group_id=APPLICATION, generation=first.epoch, member_id="a") == [
            ErrorCode.UNSUPPORTED_VERSION
        ]

    play(talk, settings=SETTINGS)


def test_a_streams_group_is_listed_described_and_deleted() -> None:
    async def talk(cluster: Cluster) -> None:
        (member,) = await streams_members(cluster, "a")
        await settle(member)
        listed = await cluster.ask(ListGroupsRequest(types_filter=["streams"]), 5)
        assert [(one.group_id, one.protocol_type, one.group_state, one.group_type) for one in listed.groups] == [
            (APPLICATION, "streams", "Stable", "streams")
        ]
        described = await describe_streams(cluster)
        assert (described.group_state, described.assignor_name) == ("Stable", "sticky")
        assert described.topology is not None and described.topology.subtopologies is not None
        assert described.topology.subtopologies[0].state_changelog_topics[0].partitions == 2
        assert [one.partitions for one in described.members[0].assignment.active_tasks] == [[0, 1]]
        classic = (await cluster.ask(DescribeGroupsRequest(groups=[APPLICATION]), 6)).groups[0]
        assert (classic.error_code, classic.error_message) == (
            ErrorCode.GROUP_ID_NOT_FOUND,
            "Group app is not a classic group.",
        )
        place = OffsetDeleteRequestPartition(partition_index=0)
        topics = [OffsetDeleteRequestTopic(name="t", partitions=[place])]
        deleted = await cluster.ask(OffsetDeleteRequest(group_id=APPLICATION, topics=topics), 0)
        assert deleted.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        deletion = DeleteGroupsRequest(groups_names=[APPLICATION])
        assert (await cluster.ask(deletion, 2)).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
        await member.leave()
        assert (await cluster.ask(deletion, 2)).results[0].error_code == ErrorCode.NONE
        await cluster.restart()
        assert cluster.group(APPLICATION) is None

    play(talk, settings=SETTINGS)


def test_a_topology_description_is_refused_without_a_plug_in() -> None:
    async def talk(cluster: Cluster) -> None:
        response = await cluster.ask(StreamsGroupTopologyDescriptionUpdateRequest(group_id="app", member_id="a"), 0)
        assert (response.error_code, response.error_message) == (
            ErrorCode.UNSUPPORTED_VERSION,
            "The broker has no streams group topology description plugin configured.",
        )

    play(talk)


def test_the_protocol_can_be_turned_off() -> None:
    async def talk(cluster: Cluster) -> None:
        (member,) = await streams_members(cluster, "a")
        assert await member.beat() is ErrorCode.UNSUPPORTED_VERSION
        assert (await describe_streams(cluster)).error_code == ErrorCode.UNSUPPORTED_VERSION

    play(talk, settings={"group.coordinator.rebalance.protocols": "classic,consumer"})


def test_the_group_continues_after_the_largest_epoch() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await streams_members(cluster, "a", "b")
        await settle(first)
        group = streams_group(cluster)
        group.epoch = LAST_EPOCH - 1
        await settle(first, second)
        assert group.epoch == LAST_EPOCH
        group.endpoint_information_epoch = LAST_EPOCH
        await second.leave()
        await settle(first)
        assert group.epoch < 100 and first.active == BOTH
        await cluster.restart()
        await first.connect()
        await settle(first)

    play(talk, settings=SETTINGS)


def test_the_group_is_limited_in_size() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await streams_members(cluster, "a", "b")
        await settle(first)
        assert await second.beat() is ErrorCode.GROUP_MAX_SIZE_REACHED
        first.fenced()
        assert await first.turn() is ErrorCode.NONE

    play(talk, settings={**SETTINGS, "group.streams.max.size": "1"})


def test_a_large_assignment_is_computed_between_heartbeats() -> None:
    async def talk(cluster: Cluster) -> None:
        await cluster.create_topic("wide", 300)
        many = [Subtopology(subtopology_id=str(number), source_topics=["wide"]) for number in range(4)]
        first, second = await streams_members(cluster, "a", "b", with_topology=Topology(subtopologies=many))
        assert await first.beat() is ErrorCode.NONE and not first.granted[0]
        assert first.statuses == {Status.ASSIGNMENT_DELAYED: "The assignment is being computed."}
        await settle(first, second)
        assert len(first.active) == len(second.active) == 600

    play(talk, settings=SETTINGS)


def many_changelogs(count: int) -> Topology:
    changelogs = [TopicInfo(name=f"app-log{number}") for number in range(count)]
    return Topology(
        subtopologies=[Subtopology(subtopology_id="0", source_topics=["t"], state_changelog_topics=changelogs)]
    )


def test_a_large_topology_is_compared_in_steps_with_one_state_of_the_topics() -> None:
    async def talk(cluster: Cluster) -> None:
        manager = cluster.state.group_coordinator.streams_group_manager
        (member,) = await streams_members(cluster, "a", with_topology=many_changelogs(300))
        await settle(member)
        await cluster.create_topic("another")
        beat = streams_heartbeat(member)
        assert manager.must_resolve_topology(beat)
        # The hash is that of the present topics, so that nothing else has to be compared.
        steps = list(manager.resolve_topology(beat))
        assert len(steps) > 300
        group = streams_group(cluster)
        group.configured_topology = None
        resolution = manager.resolve_topology(beat)
        for _ in range(400):
            next(resolution)
        await cluster.delete_topic("t")  # between two steps
        resolved = run_to_end(resolution)
        assert resolved is not None and resolved.configured.is_ready
        # One result is enough for a heartbeat, although topics have changed since.
        assert not manager.must_resolve_topology(beat, resolved) and manager.must_resolve_topology(beat)
        manager.streams_group_heartbeat(beat, lambda result: None, resolved)
        assert await member.beat() is ErrorCode.NONE
        assert member.statuses == {Status.MISSING_SOURCE_TOPICS: "Source topics t are missing."}

    play(talk, settings=SETTINGS)


def test_members_that_join_together_with_large_topologies_agree_on_one() -> None:
    async def talk(cluster: Cluster) -> None:
        first, same = await streams_members(cluster, "a", "b", with_topology=many_changelogs(300))
        (other,) = await streams_members(cluster, "c", with_topology=many_changelogs(301))
        codes = await asyncio.gather(first.beat(), other.beat(), same.beat())
        assert sorted(codes) in ([0, 0, ErrorCode.INVALID_REQUEST], [0, *[ErrorCode.INVALID_REQUEST] * 2])
        topology = streams_group(cluster).topology
        assert topology is not None
        count = len(topology.subtopologies["0"].state_changelog_topics)
        assert count == (301 if codes[1] is ErrorCode.NONE else 300)
        await cluster.restart()
        await first.connect()
        loaded = streams_group(cluster).topology
        assert loaded == topology  # its record was encoded before the group was known

    play(talk, settings=SETTINGS)


def test_the_creation_of_internal_topics_is_within_the_quota_of_the_client() -> None:
    async def talk(cluster: Cluster) -> None:
        entry = EntryData(
            entity=[EntityData(entity_type="client-id", entity_name="streams")],
            ops=[OpData(key="controller_mutation_rate", value=0.1, remove=False)],
        )
        await cluster.ask(AlterClientQuotasRequest(entries=[entry]), 1)
        (first,) = await streams_members(cluster, "a")
        await settle(first)  # two partitions, a debt of some seconds
        (second,) = await streams_members(cluster, "b", group_id="other", with_topology=topology(changelog="more"))
        await second.turn()
        await asyncio.sleep(0.1)
        await second.turn()
        assert second.statuses[Status.MISSING_INTERNAL_TOPICS] == (
            "Internal topics are missing: app-more; "
            "Creation failed: app-more (The throttling quota has been exceeded.)."
        )
        assert "app-more" not in cluster.state.metadata
        await asyncio.sleep(60)
        second.fenced()
        await settle(second)

    play(talk, settings=SETTINGS)


def test_an_undone_change_keeps_the_offsets_that_members_have_reported() -> None:
    group, reported = StreamsGroup("g"), MemberTaskOffsets({"0": {0: 5}}, {"0": {0: 9}})
    setup = StreamsGroupChange(group)
    for name in ("a", "b"):
        setup.put_member(StreamsGroupMember(name))
        setup.set_task_offsets(name, reported)
    change = StreamsGroupChange(group)
    change.put_member(StreamsGroupMember("a", process_id="other"))
    change.remove_member("b")
    assert group.task_offsets == {"a": reported}
    change.put_member(StreamsGroupMember("c"))
    change.set_task_offsets("c", reported)
    change.undo()
    assert group.members.keys() == {"a", "b"} and group.task_offsets == {"a": reported, "b": reported}
