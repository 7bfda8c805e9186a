"""Offsets of groups are committed, read, deleted and expire, over the wire of a whole broker under virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from soak.groups.consumer_members import consumers
from soak.groups.members import GROUP, Cluster, commit_request, enter_together, play

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
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
    OffsetFetchRequestTopics,
)
from barnabas.server.apis import response_budget
from barnabas.server.apis.kafka_apis import LANE
from barnabas.server.coordinator import creation_limiter
from barnabas.server.coordinator.coordinator_log import CoordinatorRecord
from barnabas.server.coordinator.group import offset_metadata_manager, zookeeper_offsets
from barnabas.server.coordinator.group.classic_group import ClassicGroupState
from barnabas.server.coordinator.group.consumer_group import ConsumerGroup
from barnabas.server.coordinator.group.group import Group
from barnabas.server.coordinator.group.offset_metadata_manager import OffsetMetadataManager
from barnabas.server.coordinator.leadership_barrier import LeadershipBarrier
from barnabas.server.metadata.topic_names import GROUP_METADATA_TOPIC
from barnabas.server.runtime.loop_sharing import SlicedWork
from barnabas.simulation.machines import SimWork

HOUR_S = 3600
KEPT_AN_HOUR = {"offsets.retention.minutes": "60", "offsets.retention.check.interval.ms": "60000"}


@pytest.mark.parametrize("version", range(1, 11))
def test_a_consumer_without_a_group_commits_in_every_version(version: int) -> None:
    async def talk(cluster: Cluster) -> None:
        assert await cluster.commit(41, version, metadata="m") == [ErrorCode.NONE]
        assert await cluster.commit(42, version) == [ErrorCode.NONE]
        for fetch_version in range(1, 11):
            assert await cluster.committed(version=fetch_version) == 42
            assert await cluster.committed("nobody", fetch_version) == -1
        group = cluster.group()
        assert group is not None and group.state is ClassicGroupState.EMPTY and group.protocol_type is None

    play(talk)


def test_version_0_keeps_offsets_where_consumers_of_old_look() -> None:
    async def talk(cluster: Cluster) -> None:
        assert await cluster.committed(version=0) == -1
        assert await cluster.commit(7, 0) == [ErrorCode.NONE]
        assert await cluster.commit(8, 0) == [ErrorCode.NONE]
        assert await cluster.committed(version=0) == 8
        assert await cluster.committed(version=1) == -1
        data, _ = await cluster.state.store.get(f"/consumers/{GROUP}/offsets/t/0")
        assert data == b"8"
        for group_id in ("", "..", "../brokers", "a/b"):
            assert await cluster.commit(1, 0, group_id=group_id) == [ErrorCode.INVALID_GROUP_ID]

    play(talk)


def test_version_0_offsets_are_deleted_with_their_topic_and_no_other() -> None:
    async def talk(cluster: Cluster) -> None:
        await cluster.create_topic("u")
        for group_id in ("both", "only t"):
            await cluster.commit(7, 0, group_id=group_id)
        await cluster.commit(8, 0, group_id="both", topic="u")
        store = cluster.state.store
        await store.create("/consumers/both/owners")
        await cluster.delete_topic("t")
        await cluster.until(lambda: cluster.state.metadata.topic_id("t") is None)
        assert await store.exists("/consumers/only t") is None
        assert await store.children("/consumers/both") == ["offsets", "owners"]
        assert await cluster.committed("both", version=0, topic="u") == 8
        await cluster.create_topic("t")
        assert await cluster.committed("both", version=0) == -1

    play(talk)


def test_version_0_offsets_are_deleted_with_their_group() -> None:
    async def talk(cluster: Cluster) -> None:
        await cluster.commit(7, 0, group_id="old")
        await cluster.commit(7, 0, group_id="other")
        await cluster.commit(7, 0)
        await cluster.commit(9)
        answer = await cluster.ask(DeleteGroupsRequest(groups_names=["old", GROUP, "none", "a/b"]), 2)
        not_found = ErrorCode.GROUP_ID_NOT_FOUND
        found = {result.group_id: result.error_code for result in answer.results}
        assert found == {"old": ErrorCode.NONE, GROUP: ErrorCode.NONE, "none": not_found, "a/b": not_found}
        assert await cluster.state.store.children("/consumers") == ["other"]
        assert await cluster.committed(version=1) == -1

    play(talk)


def test_version_0_offsets_of_a_group_with_members_are_kept() -> None:
    async def talk(cluster: Cluster) -> None:
        await cluster.commit(7, 0)
        await (await cluster.member()).enter()
        (result,) = (await cluster.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2)).results
        assert result.error_code == ErrorCode.NON_EMPTY_GROUP
        assert await cluster.committed(version=0) == 7

    play(talk)


def test_version_0_offsets_are_bounded_and_expired_groups_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_offsets, "MAX_OFFSETS", 3)

    async def talk(cluster: Cluster) -> None:
        outcomes = [(await cluster.commit(1, 0, group_id=f"g{number}"))[0] for number in range(5)]
        assert outcomes == [ErrorCode.NONE] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2
        assert await cluster.commit(2, 0, group_id="g0") == [ErrorCode.NONE]
        # What another broker deletes counts no more a minute later.
        await cluster.state.store.delete("/consumers/g1/offsets/t/0")
        assert await cluster.commit(1, 0, group_id="g3") == [ErrorCode.GROUP_MAX_SIZE_REACHED]
        await asyncio.sleep(70)
        assert await cluster.commit(1, 0, group_id="g3") == [ErrorCode.NONE]
        await asyncio.sleep(HOUR_S)
        assert await cluster.commit(3, 0, group_id="g0") == [ErrorCode.NONE]
        assert await cluster.commit(1, 0, group_id="g4") == [ErrorCode.NONE]
        assert [await cluster.committed(f"g{number}", version=0) for number in (0, 4)] == [3, 1]
        assert await cluster.committed("g2", version=0) == -1
        await cluster.restart()
        assert await cluster.commit(1, 0, group_id="g5") == [ErrorCode.NONE]
        assert await cluster.commit(1, 0, group_id="g6") == [ErrorCode.GROUP_MAX_SIZE_REACHED]

    play(talk, settings=KEPT_AN_HOUR)


def test_version_0_offsets_created_by_one_client_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creation_limiter, "NAMES_PER_CLIENT", 2)

    async def talk(cluster: Cluster) -> None:
        outcomes = [(await cluster.commit(1, 0, group_id=f"g{number}"))[0] for number in range(3)]
        assert outcomes == [ErrorCode.NONE] * 2 + [ErrorCode.GROUP_MAX_SIZE_REACHED]

    play(talk)


def test_all_partitions_and_several_groups() -> None:
    async def talk(cluster: Cluster) -> None:
        await cluster.create_topic("u")
        await cluster.commit(1)
        await cluster.commit(2, partition=1)
        await cluster.commit(3, topic="u")
        everything = [("t", [(0, 1), (1, 2)]), ("u", [(0, 3)])]
        for version in range(2, 8):
            answer = await cluster.ask(OffsetFetchRequest(group_id=GROUP, topics=None), version)
            found = [(t.name, [(p.partition_index, p.committed_offset) for p in t.partitions]) for t in answer.topics]
            assert found == everything
        for version in range(8, 11):
            groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in (GROUP, "nobody")]
            answer = await cluster.ask(OffsetFetchRequest(groups=groups, require_stable=True), version)
            known, unknown = answer.groups
            names = [cluster.state.metadata.topic_name(t.topic_id) if version >= 10 else t.name for t in known.topics]
            offsets = [[(p.partition_index, p.committed_offset) for p in t.partitions] for t in known.topics]
            assert list(zip(names, offsets, strict=True)) == everything
            assert (unknown.group_id, unknown.topics, unknown.error_code) == ("nobody", [], ErrorCode.NONE)

    play(talk)


def test_stable_offsets_are_told_by_who_coordinates_the_group_for_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    async def confirm_leadership(_: LeadershipBarrier, index: int) -> bool:
        return False

    monkeypatch.setattr(LeadershipBarrier, "confirm_leadership", confirm_leadership)

    async def talk(cluster: Cluster) -> None:
        await cluster.commit(5)
        for stable, error, offsets in ((True, ErrorCode.NOT_COORDINATOR, []), (False, ErrorCode.NONE, [5])):
            before = OffsetFetchRequest(group_id=GROUP, topics=None, require_stable=stable)
            answer = await cluster.ask(before, 7)
            found = [one.committed_offset for topic in answer.topics for one in topic.partitions]
            assert (answer.error_code, found) == (error, offsets)
            groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=None)]
            for version in range(8, 11):
                (group,) = (await cluster.ask(OffsetFetchRequest(groups=groups, require_stable=stable), version)).groups
                found = [one.committed_offset for topic in group.topics for one in topic.partitions]
                assert (group.error_code, found) == (error, offsets)

    play(talk)


def test_what_cannot_be_committed() -> None:
    async def talk(cluster: Cluster) -> None:
        assert await cluster.commit(1, topic="none") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert await cluster.commit(1, partition=2) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert await cluster.commit(1, metadata="x" * 4097) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
        assert await cluster.commit(1, metadata="x" * 4096) == [ErrorCode.NONE]
        assert await cluster.commit(1, group_id="new", generation=1) == [ErrorCode.ILLEGAL_GENERATION]
        assert await cluster.commit(1, generation=1) == [ErrorCode.UNKNOWN_MEMBER_ID]
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        topic = OffsetCommitRequestTopic(topic_id=UUID(int=99), partitions=[part])
        answer = await cluster.ask(OffsetCommitRequest(group_id=GROUP, topics=[topic]), 10)
        assert answer.topics[0].topic_id == UUID(int=99)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        asked = OffsetFetchRequestTopics(topic_id=UUID(int=99), partition_indexes=[0])
        groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=[asked])]
        fetched = (await cluster.ask(OffsetFetchRequest(groups=groups), 10)).groups[0].topics[0]
        assert fetched.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    play(talk)


@pytest.mark.parametrize("how", ["kill", "A", "B", "stop"])
def test_a_commit_that_was_answered_survives(how: str) -> None:
    async def talk(cluster: Cluster) -> None:
        for offset in range(5):
            assert await cluster.commit(offset) == [ErrorCode.NONE]
            assert await cluster.commit(offset, group_id=f"g{offset}", version=4) == [ErrorCode.NONE]
        await cluster.restart(how)
        assert await cluster.committed() == 4
        for offset in range(5):
            assert await cluster.committed(f"g{offset}") == offset

    play(talk)


async def _delete_groups(cluster: Cluster, *names: str, version: int = 2) -> list[ErrorCode]:
    answer = await cluster.ask(DeleteGroupsRequest(groups_names=list(names)), version)
    assert [one.group_id for one in answer.results] == list(names)
    return [ErrorCode(one.error_code) for one in answer.results]


@pytest.mark.parametrize("version", range(3))
def test_groups_are_deleted_for_good(version: int) -> None:
    async def talk(cluster: Cluster) -> None:
        member = await cluster.member()
        await member.enter()
        await member.commit(5)
        await cluster.commit(6, group_id="simple")
        outcome = await _delete_groups(cluster, GROUP, "simple", "nobody", version=version)
        assert outcome == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
        await member.leave()
        assert await _delete_groups(cluster, GROUP, version=version) == [ErrorCode.NONE]
        for _ in range(2):
            assert await cluster.committed() == await cluster.committed("simple") == -1
            assert cluster.group() is None and cluster.group("simple") is None
            await cluster.restart()

    play(talk)


async def _delete_offsets(cluster: Cluster, *topics: str) -> tuple[int, list[int]]:
    wanted = [
        OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        for topic in topics
    ]
    answer = await cluster.ask(OffsetDeleteRequest(group_id=GROUP, topics=wanted), 0)
    return answer.error_code, [p.error_code for topic in answer.topics for p in topic.partitions]


def test_offsets_are_deleted_unless_somebody_reads_there() -> None:
    async def talk(cluster: Cluster) -> None:
        assert await _delete_offsets(cluster, "t") == (ErrorCode.GROUP_ID_NOT_FOUND, [])
        await cluster.create_topic("u")
        await cluster.commit(2, topic="u")
        member = await cluster.member()
        await member.enter()
        await member.commit(5)
        subscribed, unknown = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await _delete_offsets(cluster, "t", "u", "v") == (ErrorCode.NONE, [subscribed, ErrorCode.NONE, unknown])
        assert await cluster.committed() == 5 and await cluster.committed(topic="u") == -1
        await member.leave()
        assert await _delete_offsets(cluster, "t") == (ErrorCode.NONE, [ErrorCode.NONE])
        await cluster.restart()
        assert await cluster.committed() == -1

    play(talk)


def test_the_subscribed_topics_are_collected_once_for_a_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    collected = []

    def subscribed_topics(group: ConsumerGroup) -> frozenset[str]:
        collected.append(group)
        return frozenset("t")

    async def talk(cluster: Cluster) -> None:
        for name in "uv":
            await cluster.create_topic(name)
        (member,) = await consumers(cluster, "a")
        assert await member.turn() is ErrorCode.NONE
        with monkeypatch.context() as patch:
            patch.setattr(ConsumerGroup, "subscribed_topics", property(subscribed_topics))
            outcomes = [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE, ErrorCode.NONE]
            assert await _delete_offsets(cluster, *"tuv") == (ErrorCode.NONE, outcomes)
        assert len(collected) == 1

    play(talk)


def test_offsets_of_version_0_are_deleted_like_others() -> None:
    async def talk(cluster: Cluster) -> None:
        await cluster.create_topic("u")
        for topic in ("t", "u"):
            assert await cluster.commit(7, 0, topic=topic) == [ErrorCode.NONE]
        # There is no such group outside the metadata tree.
        assert await _delete_offsets(cluster, "t") == (ErrorCode.NONE, [ErrorCode.NONE])
        assert await cluster.committed(version=0) == -1 and await cluster.committed(topic="u", version=0) == 7
        assert await _delete_offsets(cluster, "t") == (ErrorCode.GROUP_ID_NOT_FOUND, [])
        await cluster.commit(8, topic="u")
        assert await _delete_offsets(cluster, "u") == (ErrorCode.NONE, [ErrorCode.NONE])
        assert await cluster.committed(topic="u") == await cluster.committed(topic="u", version=0) == -1

    play(talk)


def test_offsets_expire_some_time_after_the_last_member_left() -> None:
    async def talk(cluster: Cluster) -> None:
        member = await cluster.member(session_ms=1_800_000)
        await member.enter()
        await member.commit(5)
        await cluster.commit(1, group_id="simple")
        for _ in range(2 * HOUR_S // 500):
            await asyncio.sleep(500)
            assert await member.heartbeat() is ErrorCode.NONE
        assert await cluster.committed() == 5  # a member reads the topic
        assert await cluster.committed("simple") == -1  # an hour after the commit
        assert await member.leave() is ErrorCode.NONE
        await asyncio.sleep(0.9 * HOUR_S)
        assert await cluster.committed() == 5
        await cluster.restart()
        assert await cluster.committed() == 5
        await asyncio.sleep(0.2 * HOUR_S)
        assert await cluster.committed() == -1
        assert cluster.group() is None and cluster.group("simple") is None
        await cluster.restart()
        assert list(cluster.state.group_coordinator.group_manager.groups) == []

    play(talk, settings=KEPT_AN_HOUR)


def test_offsets_of_topics_that_nobody_reads_any_more_expire_in_a_living_group() -> None:
    async def talk(cluster: Cluster) -> None:
        await cluster.create_topic("u")
        await cluster.commit(2, topic="u")
        member = await cluster.member(session_ms=1_800_000)
        await member.enter()
        await member.commit(5)
        for _ in range(2 * HOUR_S // 500):
            await asyncio.sleep(500)
            assert await member.heartbeat() is ErrorCode.NONE
        assert await cluster.committed() == 5 and await cluster.committed(topic="u") == -1

    play(talk, settings=KEPT_AN_HOUR)


def test_a_group_whose_offsets_cannot_be_expired_keeps_no_other_group(monkeypatch: pytest.MonkeyPatch) -> None:
    really = OffsetMetadataManager.cleanup_expired_offsets

    def cleanup(self: OffsetMetadataManager, group: Group, now_ms: int) -> None:
        if group.group_id == "a":
            raise ValueError("on purpose")
        really(self, group, now_ms)

    monkeypatch.setattr(OffsetMetadataManager, "cleanup_expired_offsets", cleanup)

    async def talk(cluster: Cluster) -> None:
        for name in ("a", "b", "c"):
            await cluster.commit(1, group_id=name)
        await asyncio.sleep(1.2 * HOUR_S)
        assert [await cluster.committed(name) for name in ("a", "b", "c")] == [1, -1, -1]

    play(talk, settings=KEPT_AN_HOUR)


def test_an_offset_that_cannot_be_encoded_is_not_on_its_way_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry(*_: object) -> CoordinatorRecord:
        raise ValueError("on purpose")

    async def talk(cluster: Cluster) -> None:
        await cluster.commit(1)
        monkeypatch.setattr(offset_metadata_manager, "new_offset_commit_record", entry)
        request = commit_request(cluster, 8, 2)
        answer = await cluster.ask(request, 8)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        monkeypatch.undo()
        group = cluster.group()
        assert group is not None and not group.offsets.in_flight
        await cluster.commit(3)
        assert await cluster.committed() == 3

    play(talk)


def test_a_retention_of_the_commits_own_counts_instead() -> None:
    async def talk(cluster: Cluster) -> None:
        for version in (2, 3, 4):
            request = commit_request(cluster, version, 5, group_id=f"v{version}")
            request.retention_time_ms = 3_600_000
            await cluster.ask(request, version)
        await asyncio.sleep(3000)
        await cluster.restart()
        assert [await cluster.committed(f"v{version}") for version in (2, 3, 4)] == [5, 5, 5]
        await asyncio.sleep(1300)
        assert [await cluster.committed(f"v{version}") for version in (2, 3, 4)] == [-1, -1, -1]

    play(talk)


def test_a_topic_takes_its_offsets_with_it() -> None:
    async def talk(cluster: Cluster) -> None:
        await cluster.create_topic("u")
        await cluster.commit(9, topic="u")
        await cluster.commit(1)
        await cluster.delete_topic("u")
        await cluster.create_topic("u")
        await cluster.until(lambda: cluster.group().offsets.get("u", 0) is None, seconds=5)  # type: ignore[union-attr]
        await cluster.restart()
        assert await cluster.committed(topic="u") == -1 and await cluster.committed() == 1

    play(talk)


def test_what_is_committed_for_a_new_topic_of_the_name_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the group has not been looked through yet for offsets of the topic that is gone."""
    held: list[Callable[[], None]] = []
    run = SlicedWork.run

    def hold(work: SlicedWork, steps: Any, done: Any) -> None:
        if steps.__qualname__ == OffsetMetadataManager._delete_offsets_of_topics.__qualname__:
            held.append(partial(run, work, steps, done))
        else:
            run(work, steps, done)

    monkeypatch.setattr(SlicedWork, "run", hold)

    async def talk(cluster: Cluster) -> None:
        await cluster.create_topic("u", 2)
        await cluster.commit(9, topic="u")
        await cluster.commit(9, topic="u", partition=1)
        await cluster.delete_topic("u")
        await cluster.create_topic("u", 2)
        await cluster.commit(3, topic="u")
        for go_on in held:
            go_on()
        assert await cluster.committed(topic="u") == 3
        await cluster.restart()
        assert await cluster.committed(topic="u") == 3
        group = cluster.group()
        assert group is not None and set(group.offsets.committed) == {("u", 0)}

    play(talk)


def test_a_request_that_names_many_groups_is_told_something_about_each() -> None:
    names = [f"g{number}" for number in range(21_000)]

    async def talk(cluster: Cluster) -> None:
        await cluster.commit(1, group_id=names[-1])
        described = await cluster.ask(DescribeGroupsRequest(groups=[*names, names[0]]), 5)
        assert [one.group_id for one in described.groups] == names
        assert [one.group_state for one in described.groups[-2:]] == ["Dead", "Empty"]
        described = await cluster.ask(ConsumerGroupDescribeRequest(group_ids=names), 0)
        assert [one.group_id for one in described.groups] == names
        found = await cluster.ask(FindCoordinatorRequest(coordinator_keys=names), 4)
        assert [one.key for one in found.coordinators] == names
        fetched = await cluster.ask(
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=one) for one in names]), 8
        )
        assert [one.group_id for one in fetched.groups] == names
        deleted = await cluster.ask(DeleteGroupsRequest(groups_names=names), 2)
        assert [one.group_id for one in deleted.results] == names
        assert [one.error_code for one in deleted.results[-2:]] == [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NONE]

    play(talk)


def test_a_long_list_is_written_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    lanes = []
    submit = SimWork.submit

    def noted(self: SimWork, lane: str, *rest: Any) -> None:
        lanes.append(lane)
        submit(self, lane, *rest)

    async def talk(cluster: Cluster) -> None:
        for count in (10, 11):
            for number in range(count):
                await cluster.commit(1, group_id=f"g{number}")
            lanes.clear()
            assert len((await cluster.ask(ListGroupsRequest(), 4)).groups) == count
            assert lanes.count(LANE) == (count > 10)

    monkeypatch.setattr(response_budget, "LARGE_RESPONSE_ITEMS", 10)
    monkeypatch.setattr(SimWork, "submit", noted)
    play(talk)


async def _listed(cluster: Cluster, version: int, states: list[str], types: list[str]) -> list[str]:
    answer = await cluster.ask(ListGroupsRequest(states_filter=states, types_filter=types), version)
    assert answer.error_code == ErrorCode.NONE
    return sorted(one.group_id for one in answer.groups)


def test_groups_are_listed() -> None:
    async def talk(cluster: Cluster) -> None:
        member = await cluster.member()
        await enter_together(member)
        await cluster.commit(1, group_id="simple")
        for version in range(6):
            assert await _listed(cluster, version, [], []) == [GROUP, "simple"]
        assert await _listed(cluster, 4, ["stable"], []) == [GROUP]
        assert await _listed(cluster, 5, ["Empty", "Dead"], ["Classic"]) == ["simple"]
        assert await _listed(cluster, 5, [], ["consumer"]) == []
        answer = await cluster.ask(ListGroupsRequest(), 5)
        found = {(one.group_id, one.protocol_type, one.group_state, one.group_type) for one in answer.groups}
        assert found == {(GROUP, "consumer", "Stable", "classic"), ("simple", "", "Empty", "classic")}

    play(talk)


def test_a_request_goes_to_the_coordinator_alone() -> None:
    async def talk(cluster: Cluster) -> None:
        await cluster.commit(1)
        await cluster.delete_topic(GROUP_METADATA_TOPIC)
        assert await cluster.commit(1) == [ErrorCode.NOT_COORDINATOR]
        member = await cluster.member()
        assert await member.join() is ErrorCode.NOT_COORDINATOR
        assert await member.heartbeat() is ErrorCode.NOT_COORDINATOR
        await member.find()
        assert await cluster.committed() == -1
        assert await cluster.commit(2) == [ErrorCode.NONE]

    play(talk)


def test_while_groups_are_loaded_members_are_told_to_wait() -> None:
    async def talk(cluster: Cluster) -> None:
        member = await cluster.member()
        await member.enter()
        await member.commit(5)
        groups = cluster.state.group_coordinator
        shard = groups.group_manager.get_shard(GROUP)
        shard.is_loaded = False
        assert await member.heartbeat() is ErrorCode.NONE
        assert await member.sync() is ErrorCode.REBALANCE_IN_PROGRESS
        assert (await member.join_once()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await member.commit(6) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        for version in range(2, 8):
            answer = await cluster.ask(OffsetFetchRequest(group_id=GROUP, topics=None), version)
            assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        shard.is_loaded = True
        assert await cluster.committed() == 5

    play(talk)
