"""What a leader knows of its followers, by the clock; where logs part; which version of a request is sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest
from tests.server.partition_states import next_order
from tests.server.replication.test_partition import NAME, Listener, append, flush, leader

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.server.replication.inter_broker_versions import highest_version
from barnabas.server.replication.leader_and_isr import LeaderAndIsr
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.replica import FollowerFetch, Followers, LeaderContext, Replica
from barnabas.storage.leader_epochs import EpochEnd


class Cluster(Listener):
    """A clock, who is alive, and what was asked for."""

    def __init__(self, *, on_disk: bool = False) -> None:
        super().__init__(acks_all_on_disk=on_disk)
        self.now = 100.0
        self.eligible = {2, 3}
        self.peers = LeaderContext(
            1, lambda: self.now, lambda: 10.0, lambda broker, _: broker in self.eligible, self.eligible.__contains__
        )

    def lead(self, isr: tuple[int, ...] = (1, 2, 3), min_isr: int = 1) -> Partition:
        log = leader().log
        log.config = replace(log.config, min_insync_replicas=min_isr)
        partition = Partition(NAME, UUID(int=1), log, cast(Any, self), self.peers)
        partition.become_leader(next_order(partition, 4, partition_epoch=7, replicas=(1, 2, 3), isr=isr))
        return partition


def fetched(partition: Partition, broker_id: int, offset: int, epoch: int = -1) -> None:
    partition.update_follower_fetch_state(FollowerFetch(broker_id, epoch, offset, 0, True))


def test_the_high_watermark_is_what_all_in_sync_have_and_the_leaders_disk() -> None:
    cluster = Cluster(on_disk=True)
    partition = cluster.lead()
    append(partition, -1, 5)
    fetched(partition, 2, 5)
    assert partition.log.high_watermark == 0
    fetched(partition, 3, 3)
    assert partition.log.high_watermark == 0, "it is not on the leader's own disk"
    flush(partition)
    assert partition.log.high_watermark == 3
    fetched(partition, 3, 5)
    assert partition.log.high_watermark == 5
    assert partition.check_enough_replicas_reach_offset(5) == (True, ErrorCode.NONE)


def test_who_lags_is_to_leave_and_counts_until_that_is_decided() -> None:
    cluster = Cluster()
    partition = cluster.lead()
    append(partition, 1, 5)
    fetched(partition, 2, 5)
    cluster.now += 9
    fetched(partition, 2, 5)
    partition.shrink_isr()
    assert not cluster.changes
    cluster.now += 2
    partition.shrink_isr()
    partition.shrink_isr()
    (change,) = cluster.changes
    assert (change.isr, change.leader_epoch, change.partition_epoch) == ((1, 2), 4, 7)
    assert partition.log.high_watermark == 0
    partition.complete_isr_change(change, LeaderAndIsr(1, 4, 8, (1, 2)))
    assert (partition.log.high_watermark, partition.partition_epoch, partition.in_sync_replicas) == (5, 8, (1, 2))


def test_who_is_to_join_counts_before_it_is_decided() -> None:
    cluster = Cluster()
    partition = cluster.lead(isr=(1, 2))
    append(partition, 1, 2)
    fetched(partition, 2, 2)
    assert partition.log.high_watermark == 2
    fetched(partition, 3, 1, epoch=5)
    assert not cluster.changes, "it lacks what is committed"
    fetched(partition, 3, 2, epoch=5)
    (change,) = cluster.changes
    assert (change.isr, change.broker_epochs) == ((1, 2, 3), (-1, -1, 5))
    append(partition, 1)
    cluster.now += 100
    fetched(partition, 2, 3)
    assert partition.log.high_watermark == 2, "an election may choose 3 already"
    partition.fail_isr_change(change, ErrorCode.FENCED_LEADER_EPOCH)
    assert partition.is_pending(change), "nobody knows whether it was made"
    partition.fail_isr_change(change, ErrorCode.INELIGIBLE_REPLICA)
    assert not partition.is_pending(change)
    cluster.eligible.discard(3)
    fetched(partition, 3, 3)
    assert len(cluster.changes) == 1


def test_who_has_all_that_is_committed_but_not_what_the_term_began_with_does_not_join() -> None:
    cluster = Cluster()
    partition = cluster.lead(isr=(1,))
    append(partition, 1, 4)
    partition.log.high_watermark = 2
    partition.become_leader(next_order(partition, 5, partition_epoch=8, isr=(1, 2)))
    fetched(partition, 3, 3)
    assert not cluster.changes
    fetched(partition, 3, 4)
    assert [change.isr for change in cluster.changes] == [(1, 2, 3)]


def test_what_followers_had_before_a_term_of_another_leader_counts_no_longer() -> None:
    """Who leads again has not heard of the term between, in which they may have been cut down."""
    cluster = Cluster()
    partition = cluster.lead()
    append(partition, 1, 5)
    fetched(partition, 2, 5)
    fetched(partition, 3, 3)
    partition.become_leader(next_order(partition, 6, partition_epoch=9))
    fetched(partition, 3, 5)
    assert partition.log.high_watermark == 3, "nobody knows what 2 has"
    fetched(partition, 2, 4)
    assert partition.log.high_watermark == 4


@pytest.mark.parametrize(
    ("now", "is_applied"),
    [
        (LeaderAndIsr(1, 4, 8, (1, 2)), True),
        (LeaderAndIsr(1, 5, 8, (1, 2)), False),
        (LeaderAndIsr(1, 4, 6, (1, 2)), False),
    ],
)
def test_an_answer_of_another_time_is_nothing(now: LeaderAndIsr, is_applied: bool) -> None:
    cluster = Cluster()
    partition = cluster.lead()
    append(partition, 1, 5)
    cluster.now += 20
    fetched(partition, 2, 5)
    partition.shrink_isr()
    (change,) = cluster.changes
    partition.complete_isr_change(change, now)
    assert (partition.in_sync_replicas == (1, 2)) is is_applied
    partition.become_leader(next_order(partition, 9, partition_epoch=9, isr=(1, 2, 3)))
    partition.complete_isr_change(change, LeaderAndIsr(1, 9, 10, (1,)))
    assert partition.in_sync_replicas == (1, 2, 3)


def test_who_was_about_to_join_and_died_keeps_nobody_waiting() -> None:
    cluster = Cluster()
    cluster.eligible.clear()
    partition = cluster.lead(isr=(1,))
    fetched(partition, 3, 0)
    cluster.eligible.add(3)
    append(partition, 1, 2)
    assert partition.log.high_watermark == 0
    cluster.eligible.discard(3)
    partition.shrink_isr()
    assert partition.log.high_watermark == 2


def test_a_new_leader_counts_what_is_on_its_disk() -> None:
    cluster = Cluster(on_disk=True)
    partition = cluster.lead()
    append(partition, -1, 2)
    partition.become_follower(next_order(partition, 5, leader=2, isr=(1, 2, 3)))
    partition.become_leader(next_order(partition, 6, isr=(1, 2, 3)))
    fetched(partition, 2, 2)
    fetched(partition, 3, 2)
    assert (partition.log.high_watermark, cluster.requested) == (0, 2)
    flush(partition)
    assert partition.log.high_watermark == 2


def test_the_high_watermark_waits_for_min_isr() -> None:
    cluster = Cluster()
    partition = cluster.lead(isr=(1,), min_isr=2)
    append(partition, 1, 2)
    with pytest.raises(KafkaError) as caught:
        append(partition, -1)
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.log.high_watermark == 0
    fetched(partition, 2, 2)
    assert partition.log.high_watermark == 0
    partition.complete_isr_change(cluster.changes[0], LeaderAndIsr(1, 4, 8, (1, 2)))
    assert partition.log.high_watermark == 2


def test_an_earlier_life_and_a_stranger_are_told_so() -> None:
    partition = Cluster().lead()
    fetched(partition, 2, 0, epoch=6)
    for broker_id, epoch, knows, code in (
        (2, 5, True, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (9, 5, True, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (9, 5, False, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ):
        with pytest.raises(KafkaError) as caught:
            partition.update_follower_fetch_state(FollowerFetch(broker_id, epoch, 0, 0, knows))
        assert caught.value.code is code
    fetched(partition, 2, 0, epoch=-1)


def test_caught_up_is_who_had_at_its_fetch_what_there_was_at_the_one_before() -> None:
    replica = Replica(2, 0.0)
    replica.update_fetch_state(FollowerFetch(2, -1, 5, 0, True), 10, 1.0)
    assert replica.last_caught_up == 0.0
    replica.update_fetch_state(FollowerFetch(2, -1, 10, 0, True), 20, 2.0)
    assert replica.last_caught_up == 1.0
    replica.update_fetch_state(FollowerFetch(2, -1, 20, 0, True), 20, 3.0)
    assert replica.last_caught_up == 3.0


def test_the_same_leader_goes_on_with_what_it_knows() -> None:
    cluster = Cluster()
    partition = cluster.lead()
    append(partition, 1, 3)
    fetched(partition, 2, 3)
    before = partition.followers
    partition.become_leader(next_order(partition, 5, partition_epoch=8, isr=(1, 2)))
    assert isinstance(before, Followers)
    assert partition.followers is not before
    assert partition.followers is not None
    assert partition.followers.replicas[2].log_end_offset == 3


@pytest.mark.parametrize(
    ("leader_end", "expected"),
    [
        (EpochEnd(2, 7), (7, True)),
        (EpochEnd(2, 99), (8, True)),
        (EpochEnd(1, 4), (3, False)),
        (EpochEnd(9, 6), (6, True)),
        (EpochEnd(-1, 6), (6, True)),
        (EpochEnd(-1, -1), (4, True)),
    ],
)
def test_where_logs_part(leader_end: EpochEnd, expected: tuple[int, bool]) -> None:
    """Epoch 0 from 0 on, 2 from 3, 3 from 8 to the end at 10; 4 is committed."""
    partition = leader()
    log = partition.log
    log.leader_epochs.clear()
    append(partition, 1, 10)
    log.leader_epochs.clear()
    for epoch, start in ((0, 0), (2, 3), (3, 8)):
        log.leader_epochs.assign(epoch, start)
    log.high_watermark = 4
    assert partition.truncation_offset(leader_end) == expected


@pytest.mark.parametrize(
    ("protocol", "versions"),
    [
        ("3.9-IV0", (17, 8, 4)), ("3.9", (17, 8, 4)), ("3.5-IV0", (14, 8, 4)), ("3.0", (12, 7, 4)),
        ("2.7-IV0", (11, 5, 3)), ("2.7-IV1", (12, 5, 3)), ("2.6", (11, 5, 3)), ("2.0-IV0", (7, 2, 1)),
        ("1.0", (5, 2, 0)), ("0.11.0-IV0", (4, 2, 0)), ("0.10.1-IV1", (3, 0, 0)), ("0.10.0.1", (2, 0, 0)),
        ("0.9.0", (1, 0, 0)), ("0.8.2.0", (0, 0, 0)),
    ],
)  # fmt: skip
def test_brokers_speak_as_the_oldest_of_them(protocol: str, versions: tuple[int, int, int]) -> None:
    keys = ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH
    assert tuple(highest_version(key, protocol) for key in keys) == versions


def test_a_newer_partition_epoch_of_the_same_leader_epoch_sets_replicas_and_isr() -> None:
    cluster = Cluster()
    partition = cluster.lead()
    append(partition, 1, 5)
    fetched(partition, 2, 5)
    cluster.now += 11
    fetched(partition, 2, 5)
    partition.shrink_isr()
    (change,) = cluster.changes
    assert partition.is_pending(change)
    partition.become_leader(next_order(partition, 4, partition_epoch=8, replicas=(1, 2, 3, 4), isr=(1, 2)))
    assert (partition.partition_epoch, partition.in_sync_replicas, partition.log.high_watermark) == (8, (1, 2), 5)
    assert not partition.is_pending(change)
    assert partition.followers is not None
    assert sorted(partition.followers.replicas) == [2, 3, 4]
    # An outdated state, and the response to the change that the newer state has decided.
    partition.become_leader(next_order(partition, 4, partition_epoch=7, replicas=(1, 2, 3), isr=(1, 2, 3)))
    partition.complete_isr_change(change, LeaderAndIsr(1, 4, 8, (1, 2)))
    assert (partition.partition_epoch, partition.replicas) == (8, (1, 2, 3, 4))
