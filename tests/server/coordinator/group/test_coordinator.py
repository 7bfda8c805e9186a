"""Members of classic groups come, go, crash and come back, over the wire of a whole broker under virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from soak.groups.members import GROUP, Cluster, Member, enter_together, play, rebalance, subscription

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest
from barnabas.server.coordinator.group import classic_group_manager
from barnabas.server.coordinator.group.classic_group import (
    ClassicGroupState,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from barnabas.server.coordinator.group.classic_group_manager import ClassicGroupManager
from barnabas.server.coordinator.group.response_pacer import PAUSE_SECONDS, RESPONSES_PER_PAUSE

VERSIONS = [
    (0, 0, 0, 0),
    (1, 1, 1, 1),
    (2, 1, 1, 2),
    (3, 2, 2, 2),
    (4, 2, 2, 2),
    (5, 3, 3, 3),
    (6, 4, 4, 4),
    (7, 5, 4, 4),
    (8, 5, 4, 5),
    (9, 5, 4, 5),
]


@pytest.mark.parametrize("versions", VERSIONS, ids=lambda versions: f"join-v{versions[0]}")
def test_a_life_in_every_version(versions: tuple[int, int, int, int]) -> None:
    async def talk(cluster: Cluster) -> None:
        member = await cluster.member(versions=versions)
        assert await member.join() is ErrorCode.NONE
        assert member.is_leader and member.generation == 1
        assert member.joined is not None and [one.member_id for one in member.joined.members] == [member.member_id]
        assert member.joined.protocol_name == "range"
        assert await member.heartbeat() is ErrorCode.NONE
        assert await member.sync() is ErrorCode.NONE
        assert member.assignment == member.member_id.encode()
        assert await member.heartbeat() is ErrorCode.NONE
        assert await member.commit(5) is ErrorCode.NONE
        assert await member.leave() is ErrorCode.NONE
        assert await member.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
        group = cluster.group()
        assert group is not None and group.state is ClassicGroupState.EMPTY and group.generation == 2
        assert await cluster.committed() == 5

    play(talk)


def test_a_newcomer_is_told_its_id_first_and_is_forgotten_if_it_does_not_come_back() -> None:
    async def talk(cluster: Cluster) -> None:
        member = await cluster.member()
        answer = await member.join_once()
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert answer.member_id.startswith("c-")
        group = cluster.group()
        assert group is not None and group.pending_members == {answer.member_id} and not group.members
        await cluster.until(lambda: cluster.group() is None, seconds=11)
        member.member_id = answer.member_id
        assert (await member.join_once()).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    play(talk)


@pytest.mark.parametrize("client_id", ["c" * 32_767, "ä" * 16_383])
@pytest.mark.parametrize("join_version", [3, 9])
def test_the_longest_client_id_makes_a_member_id_that_can_be_sent(client_id: str, join_version: int) -> None:
    async def talk(cluster: Cluster) -> None:
        versions = next(one for one in VERSIONS if one[0] == join_version)
        other, member = await cluster.member(versions=versions), await cluster.member(versions=versions)
        assert await other.join() is ErrorCode.NONE
        member._connection = await cluster.connect(client_id)
        joining = asyncio.ensure_future(member.join())
        await asyncio.sleep(1)
        assert await other.join() is ErrorCode.NONE, "the leader learns of the other one"
        assert await joining is ErrorCode.NONE
        assert len(member.member_id.encode()) <= 32_767 and member.member_id[:10] == client_id[:10]
        assert await asyncio.gather(other.sync(), member.sync()) == [ErrorCode.NONE] * 2

    play(talk)


def test_a_rebalance_waits_for_an_id_that_was_given_out() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await cluster.member(), await cluster.member()
        await first.enter()
        answer = await second.join_once()
        third = await cluster.member(versions=(3, 2, 2, 2))
        joining = asyncio.gather(first.join(), third.join())
        await asyncio.sleep(5)
        assert not joining.done()
        second.member_id = answer.member_id
        assert await second.join() is ErrorCode.NONE
        assert await joining == [ErrorCode.NONE, ErrorCode.NONE]
        assert first.generation == second.generation == third.generation == 2

    play(talk)


def test_members_share_and_a_heartbeat_says_that_somebody_came() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await cluster.member(), await cluster.member()
        await first.enter()
        joining = asyncio.ensure_future(second.join())
        await asyncio.sleep(1)
        assert await first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        assert await first.sync() is ErrorCode.REBALANCE_IN_PROGRESS
        assert await first.commit(3) is ErrorCode.NONE  # what was read under the old assignment still counts
        assert await first.join() is ErrorCode.NONE
        assert await joining is ErrorCode.NONE
        assert first.is_leader and not second.is_leader
        assert first.joined is not None and second.joined is not None
        assert {one.member_id for one in first.joined.members} == {first.member_id, second.member_id}
        assert second.joined.members == []
        assert await first.commit(4) is ErrorCode.REBALANCE_IN_PROGRESS
        following = asyncio.ensure_future(second.sync())
        await asyncio.sleep(1)
        assert not following.done()
        assert await first.sync({second.member_id: b"all"}) is ErrorCode.NONE
        assert await following is ErrorCode.NONE
        assert (first.assignment, second.assignment) == (b"", b"all")
        assert await cluster.committed() == 3

    play(talk)


def test_a_member_that_falls_silent_loses_its_place() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await cluster.member(), await cluster.member()
        await enter_together(first, second)
        second.vanish()
        for _ in range(12):
            outcome = await first.heartbeat()
            if outcome is ErrorCode.REBALANCE_IN_PROGRESS:
                break
            assert outcome is ErrorCode.NONE
            await asyncio.sleep(1)
        await rebalance(first)
        assert first.joined is not None and len(first.joined.members) == 1 and first.is_leader

    play(talk)


def test_who_does_not_join_again_in_time_is_out_and_the_leader_is_replaced() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second, third = [await cluster.member(session_ms=60_000) for _ in range(3)]
        await enter_together(first, second, third)
        leader = next(member for member in (first, second, third) if member.is_leader)
        others = [member for member in (first, second, third) if member is not leader]
        assert await others[0].leave() is ErrorCode.NONE
        began = cluster.loop.time()
        assert await others[1].join() is ErrorCode.NONE
        assert 29 < cluster.loop.time() - began < 31
        assert others[1].is_leader
        assert await leader.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID

    play(talk)


def test_who_does_not_ask_for_its_assignment_is_out() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = [await cluster.member(session_ms=600_000) for _ in range(2)]
        await enter_together(first, second)
        leader, follower = (first, second) if first.is_leader else (second, first)
        joining = asyncio.ensure_future(leader.join())
        await asyncio.sleep(0.1)
        assert await follower.join() is ErrorCode.NONE and await joining is ErrorCode.NONE
        assert await leader.sync() is ErrorCode.NONE
        await asyncio.sleep(31)
        assert await leader.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        assert await follower.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID

    play(talk)


def test_an_empty_group_waits_for_more_members_before_it_begins() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await cluster.member(), await cluster.member()
        began = cluster.loop.time()
        joining = asyncio.ensure_future(first.join())
        await asyncio.sleep(2)
        assert await second.join() is ErrorCode.NONE
        assert await joining is ErrorCode.NONE
        assert first.generation == second.generation == 1
        assert 4.9 < cluster.loop.time() - began < 5.2  # the delay, and anew because somebody came

    play(talk, settings={"group.initial.rebalance.delay.ms": "3000"})


def test_joining_again_unchanged_gives_the_present_generation_except_to_the_leader() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await cluster.member(), await cluster.member()
        await enter_together(first, second)
        leader, follower = (first, second) if first.is_leader else (second, first)
        generation = follower.generation
        assert await follower.join() is ErrorCode.NONE and follower.generation == generation
        assert await follower.sync() is ErrorCode.NONE and follower.assignment == follower.member_id.encode()
        joining = asyncio.ensure_future(leader.join())
        await asyncio.sleep(0.5)
        assert await follower.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        assert await follower.join() is ErrorCode.NONE and await joining is ErrorCode.NONE
        assert follower.generation == generation + 1

    play(talk)


def test_a_zombie_of_an_older_generation_is_fenced() -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await cluster.member(), await cluster.member()
        await first.enter()
        old = first.generation
        await enter_together(first, second)
        new, first.generation = first.generation, old
        assert await first.heartbeat() is ErrorCode.ILLEGAL_GENERATION
        assert await first.sync() is ErrorCode.ILLEGAL_GENERATION
        assert await first.commit(1) is ErrorCode.ILLEGAL_GENERATION
        first.generation = new
        assert await first.heartbeat() is ErrorCode.NONE
        stranger = await cluster.member()
        stranger.member_id, stranger.generation = "c-stranger", new
        assert await stranger.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
        assert await stranger.commit(1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert (await stranger.join_once()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert await stranger.leave() is ErrorCode.UNKNOWN_MEMBER_ID
        assert await cluster.commit(9) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert await cluster.committed() == -1

    play(talk)


def test_a_static_member_restarts_without_a_rebalance_and_its_former_self_is_fenced() -> None:
    async def talk(cluster: Cluster) -> None:
        first = await cluster.member(instance_id="one")
        second = await cluster.member(instance_id="two")
        await enter_together(first, second)
        leader, follower = (first, second) if first.is_leader else (second, first)
        generation = leader.generation
        again = await cluster.member(instance_id=follower.instance_id)
        assert await again.join() is ErrorCode.NONE
        assert again.generation == generation and again.member_id != follower.member_id
        assert again.member_id.startswith(f"{follower.instance_id}-")
        assert await again.sync() is ErrorCode.NONE
        assert again.assignment == follower.member_id.encode()  # what its former self was given
        assert await follower.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
        assert await follower.commit(1) is ErrorCode.FENCED_INSTANCE_ID
        assert await leader.heartbeat() is ErrorCode.NONE
        boss = await cluster.member(instance_id=leader.instance_id)
        assert await boss.join() is ErrorCode.NONE
        assert boss.joined is not None and boss.joined.skip_assignment and boss.is_leader
        assert len(boss.joined.members) == 2 and boss.generation == generation
        old_boss = await cluster.member(instance_id=leader.instance_id, versions=(8, 5, 4, 5))
        assert await old_boss.join() is ErrorCode.NONE
        assert not old_boss.is_leader and old_boss.leader == boss.member_id

    play(talk)


@pytest.mark.parametrize("leads", [True, False])
def test_a_static_member_that_is_back_with_other_topics_disturbs_nobody(leads: bool) -> None:
    """As in Kafka 4.1.1: only another choice of protocol is a reason for a rebalance."""

    async def talk(cluster: Cluster) -> None:
        members = [await cluster.member(instance_id=name) for name in ("one", "two")]
        await enter_together(*members)
        back, other = sorted(members, key=lambda one: one.is_leader is not leads)
        again = await cluster.member(instance_id=back.instance_id, topics=("t", "u"))
        assert await again.join() is ErrorCode.NONE
        assert again.generation == back.generation and again.is_leader is leads
        assert again.joined is not None and again.joined.skip_assignment is leads
        assert await again.sync() is ErrorCode.NONE and again.assignment == back.member_id.encode()
        assert await other.heartbeat() is ErrorCode.NONE

    play(talk)


def test_a_static_member_with_other_protocols_does_rebalance() -> None:
    async def talk(cluster: Cluster) -> None:
        first = await cluster.member(instance_id="one", protocols=("range", "sticky"))
        second = await cluster.member(protocols=("range", "sticky"))
        await enter_together(first, second)
        again = await cluster.member(instance_id="one", protocols=("sticky",))
        joining = asyncio.ensure_future(again.join())
        await asyncio.sleep(1)
        assert await second.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        await second.join()
        assert await joining is ErrorCode.NONE and again.generation == second.generation

    play(talk)


def test_a_static_member_is_removed_by_its_instance_id() -> None:
    async def talk(cluster: Cluster) -> None:
        member = await cluster.member(instance_id="one")
        await member.enter()
        member.vanish()
        operator = await cluster.member(instance_id="one")
        assert await operator.leave() is ErrorCode.NONE
        group = cluster.group()
        assert group is not None and group.state is ClassicGroupState.EMPTY
        assert await operator.leave() is ErrorCode.UNKNOWN_MEMBER_ID

    play(talk)


def test_static_members_that_are_gone_one_after_the_other_leave_an_empty_group() -> None:
    """A rebalance is over before a session is: nobody joins it, and nobody's session begins anew with it."""

    async def talk(cluster: Cluster) -> None:
        first, last = [
            await cluster.member(instance_id=name, session_ms=10_000, rebalance_ms=6_000) for name in ("one", "two")
        ]
        await enter_together(first, last)
        first.vanish()
        for _ in range(9):
            await asyncio.sleep(1)
            assert await last.heartbeat() is ErrorCode.NONE
        last.vanish()
        group = cluster.group()
        assert group is not None
        await cluster.until(lambda: group.state is ClassicGroupState.EMPTY, seconds=11)

    play(talk)


def test_what_is_refused() -> None:
    async def talk(cluster: Cluster) -> None:
        one = await cluster.member(session_ms=5_999)
        assert await one.join() is ErrorCode.INVALID_SESSION_TIMEOUT
        one.session_ms = 1_800_001
        assert await one.join() is ErrorCode.INVALID_SESSION_TIMEOUT
        assert await (await cluster.member(protocols=())).join() is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert await (await cluster.member(group_id="")).join() is ErrorCode.INVALID_GROUP_ID
        member = await cluster.member(protocols=("range", "roundrobin"))
        await member.enter()
        other = await cluster.member(protocols=("sticky",))
        assert await other.join() is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        request = JoinGroupRequest(group_id=GROUP, session_timeout_ms=10_000, protocol_type="connect")
        assert (await cluster.ask(request, 5)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        huge = await cluster.member(group_id="huge")
        huge.metadata = bytes(1024 * 1024)
        assert await huge.join() is ErrorCode.INVALID_REQUEST
        assert cluster.group("huge") is None

    play(talk)


def test_a_group_is_full() -> None:
    async def talk(cluster: Cluster) -> None:
        members = [await cluster.member() for _ in range(3)]
        await enter_together(*members[:2])
        assert await members[2].join() is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert await members[0].heartbeat() is ErrorCode.NONE

    play(talk, settings={"group.max.size": "2"})


def test_many_answers_are_sent_at_a_pace() -> None:
    async def talk(cluster: Cluster) -> None:
        groups = cluster.state.group_coordinator
        await groups.group_manager.find_coordinator(GROUP)
        answered = Counter[float]()

        def answer(result: JoinResult) -> None:
            assert result.error is ErrorCode.NONE and result.generation == 1
            answered[cluster.loop.time()] += 1

        for _ in range(60):
            protocols = (("range", subscription("t")),)
            reply = groups.pace_reply(answer)
            groups.join_group(
                GROUP, JoinRequest("", None, "c", "/h", 5000, 5000, "consumer", protocols, False, False, reply)
            )
        await cluster.until(lambda: answered.total() == 60, seconds=1)
        assert max(answered.values()) == RESPONSES_PER_PAUSE
        assert max(answered) - min(answered) < 60 / RESPONSES_PER_PAUSE * PAUSE_SECONDS * 1.1

    play(talk)


async def join_again(cluster: Cluster, *members: Member) -> int:
    """All members of a stable group join, first the leader, with whom a rebalance begins; returns the generation."""
    group = cluster.group()
    assert group is not None
    leader = next(member for member in members if member.is_leader)
    joining = [asyncio.ensure_future(leader.join())]
    await cluster.until(lambda: group.is_in(ClassicGroupState.PREPARING_REBALANCE), seconds=1)
    joining += [asyncio.ensure_future(member.join()) for member in members if member is not leader]
    assert await asyncio.gather(*joining) == [ErrorCode.NONE] * len(members)
    return group.generation


def test_who_waits_for_its_turn_to_be_answered_does_not_fall_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(cluster: Cluster) -> None:
        members = [
            await cluster.member(versions=(3, 2, 2, 2), session_ms=10_000) for _ in range(2 * RESPONSES_PER_PAUSE)
        ]
        await enter_together(*members)
        group = cluster.group()
        assert group is not None
        await asyncio.sleep(9)
        monkeypatch.setattr("barnabas.server.coordinator.group.response_pacer.PAUSE_SECONDS", 8.0)
        began, generation = cluster.loop.time(), group.generation
        assert await join_again(cluster, *members) == generation + 1
        assert cluster.loop.time() - began > 8
        assert len(group.members) == len(members)
        await cluster.until(lambda: group.is_empty, seconds=21)  # the sessions go on from the answers

    play(talk)


def test_who_was_replaced_before_its_turn_is_answered_under_its_own_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.server.coordinator.group.response_pacer.PAUSE_SECONDS", 1.0)

    async def talk(cluster: Cluster) -> None:
        groups, told = cluster.state.group_coordinator, list[JoinResult]()
        await groups.group_manager.find_coordinator(GROUP)

        def join(instance_id: str | None) -> None:
            reply, protocols = groups.pace_reply(told.append), (("range", subscription("t")),)
            groups.join_group(
                GROUP, JoinRequest("", instance_id, "c", "/h", 5000, 5000, "consumer", protocols, False, False, reply)
            )

        for _ in range(RESPONSES_PER_PAUSE):
            join(None)
        join("static")
        await cluster.until(lambda: len(told) == RESPONSES_PER_PAUSE, seconds=1)
        group = cluster.group()
        assert group is not None
        former = group.static_member_id("static")
        join("static")
        assert group.static_member_id("static") != former
        await cluster.until(lambda: len(told) > RESPONSES_PER_PAUSE, seconds=2)
        assert (told[-1].error, told[-1].member_id, told[-1].generation) == (ErrorCode.NONE, former, 1)

    play(talk)


def test_a_large_group_is_written_down_in_turns_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic_group_manager, "ENCODED_MEMBERS_PER_TURN", 2)

    async def talk(cluster: Cluster) -> None:
        members = [await cluster.member(versions=(3, 2, 2, 2)) for _ in range(5)]
        await enter_together(*members)
        assert [member.assignment for member in members] == [member.member_id.encode() for member in members]
        await cluster.restart()
        for member in members:
            await member.connect()
            assert await member.heartbeat() is ErrorCode.NONE
        group = cluster.group()
        assert group is not None and {m: one.assignment.decode() for m, one in group.members.items()} == {
            member.member_id: member.member_id for member in members
        }

    play(talk)


def test_a_rebalance_may_begin_while_the_one_before_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic_group_manager, "ENCODED_MEMBERS_PER_TURN", 1)

    async def talk(cluster: Cluster) -> None:
        members = [await cluster.member(versions=(3, 2, 2, 2)) for _ in range(4)]
        await enter_together(*members)
        leader = next(member for member in members if member.is_leader)
        others = [member for member in members if member is not leader]
        generation = await join_again(cluster, *members)
        group = cluster.group()
        assert group is not None and leader.is_leader
        waiting = [asyncio.ensure_future(member.sync()) for member in others[1:]]
        await cluster.until(lambda: len(group.pending_syncs) == 2, seconds=5)
        groups, syncing, left = cluster.state.group_coordinator, list[SyncResult](), list[LeaveResult]()
        assignments = {member.member_id: b"given" for member in members}
        reply = groups.pace_reply(syncing.append)
        groups.sync_group(GROUP, SyncRequest(leader.member_id, None, generation, None, None, assignments, reply))
        groups.leave_group(GROUP, [LeavingMember(others[0].member_id, None)], left.append)
        assert left == [LeaveResult(ErrorCode.NONE, [ErrorCode.NONE])] and group.is_in(
            ClassicGroupState.PREPARING_REBALANCE
        )
        assert await asyncio.gather(*waiting) == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
        await cluster.until(lambda: [one.error for one in syncing] == [ErrorCode.REBALANCE_IN_PROGRESS], seconds=1)
        await rebalance(leader, *others[1:])
        assert group.generation == generation + 1 and group.state is ClassicGroupState.STABLE
        assert [member.assignment for member in others[1:]] == [member.member_id.encode() for member in others[1:]]

    play(talk)


def test_a_join_that_fails_inside_the_broker_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    async def talk(cluster: Cluster) -> None:
        member = await cluster.member()
        with monkeypatch.context() as patch:
            patch.setattr(ClassicGroupManager, "join", broken)
            assert (await member.join_once()).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        await member.enter()

    play(talk)


def test_the_protocol_is_voted_for() -> None:
    async def talk(cluster: Cluster) -> None:
        first = await cluster.member(protocols=("sticky", "range"))
        others = [await cluster.member(protocols=("range", "sticky", "mine")) for _ in range(2)]
        await enter_together(first, *others)
        await asyncio.gather(*(member.join() for member in (first, *others)))
        assert first.joined is not None and first.joined.protocol_name == "range"

    play(talk)


@pytest.mark.parametrize("how", ["kill", "A", "B", "stop"])
def test_a_group_outlives_its_broker(how: str) -> None:
    async def talk(cluster: Cluster) -> None:
        first, second = await cluster.member(), await cluster.member(instance_id="two")
        await enter_together(first, second)
        assert await first.commit(17) is ErrorCode.NONE
        await cluster.restart(how)
        for member in (first, second):
            await member.connect()
            assert await member.heartbeat() is ErrorCode.NONE
        assert await cluster.committed() == 17
        assert await first.sync() is ErrorCode.NONE and first.assignment == first.member_id.encode()
        described = await cluster.ask(DescribeGroupsRequest(groups=[GROUP]), 5)
        assert described.groups[0].group_state == "Stable"
        assert {m.group_instance_id for m in described.groups[0].members} == {None, "two"}
        first.vanish()
        await asyncio.sleep(9)
        assert await second.heartbeat() is ErrorCode.NONE  # full sessions after the load
        await asyncio.sleep(3)
        assert await second.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        await rebalance(second)

    play(talk)


def test_a_crash_between_join_and_sync_leaves_the_older_generation() -> None:
    async def talk(cluster: Cluster) -> None:
        member = await cluster.member()
        await member.enter()
        stable = member.generation
        assert await member.join() is ErrorCode.NONE and member.generation == stable + 1
        await cluster.restart()
        await member.connect()
        assert await member.sync() is ErrorCode.ILLEGAL_GENERATION
        await rebalance(member)
        assert member.generation == stable + 1

    play(talk)


async def _described(cluster: Cluster, group_id: str, version: int) -> tuple[str, int]:
    (answer,) = (await cluster.ask(DescribeGroupsRequest(groups=[group_id]), version)).groups
    return answer.group_state, answer.error_code


def test_members_are_described_only_while_their_assignments_hold() -> None:
    async def talk(cluster: Cluster) -> None:
        assert await _described(cluster, "nobody", 5) == ("Dead", ErrorCode.NONE)
        assert await _described(cluster, "nobody", 6) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
        member = await cluster.member()
        assert await member.join() is ErrorCode.NONE
        for version in range(7):
            (answer,) = (await cluster.ask(DescribeGroupsRequest(groups=[GROUP]), version)).groups
            assert (answer.group_state, answer.protocol_type) == ("CompletingRebalance", "consumer")
            assert (answer.protocol_data, answer.members[0].member_metadata) == ("", b"")
        await member.sync()
        for version in range(7):
            request = DescribeGroupsRequest(groups=[GROUP], include_authorized_operations=version >= 3)
            (answer,) = (await cluster.ask(request, version)).groups
            assert (answer.group_state, answer.protocol_data) == ("Stable", "range")
            (described,) = answer.members
            assert bytes(described.member_metadata) == member.metadata
            assert bytes(described.member_assignment) == member.member_id.encode()
            assert (described.client_id, described.client_host[:1]) == ("c", "/")

    play(talk)


def test_one_client_may_not_wait_for_ever() -> None:
    async def talk(cluster: Cluster) -> None:
        members: list[Member] = [await cluster.member(rebalance_ms=1_000_000, session_ms=1_000_000) for _ in range(2)]
        await members[0].enter()
        joining = asyncio.ensure_future(members[1].join())
        # The first neither leaves nor joins: the newcomer is told to try anew after five minutes.
        assert await joining is ErrorCode.UNKNOWN_MEMBER_ID
        assert 299 < cluster.loop.time() < 302

    play(talk)
