"""Decisions of the controller that are made again because a leader has changed a state in the store."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.server.cluster_plane import ClusterPlane, Member
from tests.server.controller.topics_in_cluster import T0, create, everybody_believes

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.metadata import znodes
from barnabas.server.metadata.cluster_store import ControllerTerm
from barnabas.server.metadata.znodes import LeaderIsrAndControllerEpoch
from barnabas.server.replication.leader_and_isr import IsrChange

T1 = TopicPartition("t", 1)


async def write_state(member: Member, partition: TopicPartition, isr: tuple[int, ...]) -> None:
    """Write an ISR as a leader of an older cluster does, without a notification of the controller."""
    state = await member.state(partition)
    written = LeaderIsrAndControllerEpoch(state.leader, state.leader_epoch, isr, state.controller_epoch)
    await member.store.set(znodes.state_path(*partition), znodes.encode_state(written), state.partition_epoch)


@pytest.mark.parametrize("written_isr", [(2, 3), (2,)])
async def test_isr_change_that_is_refused_before_the_state_is_read_again_is_accepted_after_it(
    written_isr: tuple[int, ...],
) -> None:
    """The second decision accepts the change of T0, or finds that the ISR is the proposed one already."""
    async with ClusterPlane() as plane:
        await create(plane, (2, 3), (2, 3))
        leader = plane.members[2]
        proposals = []
        for partition, isr in ((T0, written_isr), (T1, (2, 3))):
            before = await leader.state(partition)
            await write_state(leader, partition, isr)
            # The proposal for T0 names the partition epoch in the store, the one for T1 the controller's.
            partition_epoch = before.partition_epoch + (partition == T0)
            proposals.append(IsrChange(partition, before.leader_epoch, partition_epoch, (2,)))
        results = await plane.controller.alter_partitions(2, leader.request_handler.broker_epoch, proposals)
        state = await leader.state(T0)
        assert state.isr == (2,)
        assert results == {T0: state, T1: ErrorCode.INVALID_UPDATE_VERSION}


async def test_election_that_is_refused_once_and_made_in_the_next_attempt_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with ClusterPlane() as plane:
        await create(plane, (2, 3), (2, 3))
        await plane.kill(2)
        await everybody_believes(plane, 3)
        await plane.start(2)
        await plane.until(lambda: {T0, T1} <= plane.members[2].replicas.roles.keys())
        leader = plane.members[3]
        for partition in (T0, T1):
            state = await leader.state(partition)
            wider = IsrChange(partition, state.leader_epoch, state.partition_epoch, (3, 2))
            await plane.controller.alter_partitions(3, leader.request_handler.broker_epoch, [wider])
        store = plane.controller._store
        write, attempts = store.set_partition_states, list[set[TopicPartition]]()

        async def write_after_the_leader(
            states: Mapping[TopicPartition, LeaderIsrAndControllerEpoch], term: ControllerTerm
        ) -> dict[TopicPartition, LeaderIsrAndControllerEpoch]:
            attempts.append(set(states))
            if len(attempts) == 1:
                await write_state(leader, T0, (3,))
            elif len(attempts) == 2:
                await write_state(leader, T0, (3, 2))
                await write_state(leader, T1, (3, 2))
            return await write(states, term)

        monkeypatch.setattr(store, "set_partition_states", write_after_the_leader)
        results = await plane.controller.elect_leaders([T0, T1], allow_unclean=False)
        assert attempts == [{T0, T1}, {T1}, {T0, T1}]
        assert [(await leader.state(partition)).leader for partition in (T0, T1)] == [2, 2]
        assert results == {T0: None, T1: None}
