"""The table of partition states, walked; elections and placement by their rules."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from barnabas.server.controller.admin_manager import alternating_racks, assign_replicas_to_brokers
from barnabas.server.controller.controller_context import (
    VALID_NEXT_PARTITION_STATES,
    VALID_NEXT_REPLICA_STATES,
    PartitionState,
    ReplicaState,
)
from barnabas.server.controller.partition_state_machine import (
    Election,
    offline_partition_leader_election,
    preferred_replica_partition_leader_election,
)

LEGAL = {
    ("NON_EXISTENT", "NEW"),
    ("NEW", "ONLINE"),
    ("NEW", "OFFLINE"),
    ("ONLINE", "ONLINE"),
    ("ONLINE", "OFFLINE"),
    ("OFFLINE", "ONLINE"),
    ("OFFLINE", "OFFLINE"),
    ("OFFLINE", "NON_EXISTENT"),
}
"""Kafka's valid previous states, turned round."""


def test_partition_states_change_as_in_kafka() -> None:
    assert {(one.name, nxt.name) for one, every in VALID_NEXT_PARTITION_STATES.items() for nxt in every} == LEGAL
    assert set(VALID_NEXT_PARTITION_STATES) == set(PartitionState)


def test_every_replica_state_has_its_next_ones() -> None:
    assert set(VALID_NEXT_REPLICA_STATES) == set(ReplicaState)
    assert set().union(*VALID_NEXT_REPLICA_STATES.values()) == set(ReplicaState) - {
        ReplicaState.ONLINE,
        ReplicaState.OFFLINE,
    }


def test_first_in_sync_live_replica_leads() -> None:
    assert offline_partition_leader_election((3, 1, 2), (2, 1), (1, 2, 3), allow_unclean=False) == Election(1, (2, 1))
    assert offline_partition_leader_election((3, 1, 2), (2, 1), (2, 3), allow_unclean=False) == Election(2, (2,))
    assert offline_partition_leader_election((3, 1, 2), (1,), (2, 3), allow_unclean=False) is None
    assert offline_partition_leader_election((3, 1, 2), (1,), (2, 3), allow_unclean=True) == Election(
        3, (3,), is_unclean=True
    )
    assert offline_partition_leader_election((3, 1), (1,), (), allow_unclean=True) is None


def test_preferred_leader_must_be_in_sync_and_live() -> None:
    assert preferred_replica_partition_leader_election((3, 1), (1, 3), (1, 3)) == Election(3, (1, 3))
    assert preferred_replica_partition_leader_election((3, 1), (1,), (1, 3)) is None
    assert preferred_replica_partition_leader_election((3, 1), (1, 3), (1,)) is None


@given(
    brokers=st.lists(st.integers(0, 99), min_size=1, max_size=7, unique=True),
    partitions=st.integers(1, 40),
    factor=st.integers(1, 7),
    seed=st.integers(),
)
def test_replicas_are_spread_evenly(brokers: list[int], partitions: int, factor: int, seed: int) -> None:
    factor = min(factor, len(brokers))
    assignment = assign_replicas_to_brokers(dict.fromkeys(brokers), range(partitions), factor, random.Random(seed))
    assert list(assignment) == list(range(partitions))
    for replicas in assignment.values():
        assert len(set(replicas)) == factor
        assert set(replicas) <= set(brokers)
    led = [sum(replicas[0] == broker for replicas in assignment.values()) for broker in brokers]
    assert max(led) - min(led) <= 1


def test_more_partitions_go_on_where_the_first_began() -> None:
    first = assign_replicas_to_brokers(dict.fromkeys([1, 2, 3]), range(4), 2, random.Random(1), 2)
    more = assign_replicas_to_brokers(dict.fromkeys([1, 2, 3]), range(4, 8), 2, random.Random(2), 2)
    assert [replicas[0] for replicas in (first | more).values()] == [2, 3, 1, 2, 3, 1, 2, 3]


def test_neighbours_stand_in_different_racks() -> None:
    """The example in the comment of Kafka's AdminUtils.getRackAlternatedBrokerList."""
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assert alternating_racks(racks) == [0, 3, 1, 5, 4, 2]


@given(
    racks=st.dictionaries(st.integers(0, 20), st.sampled_from("abcd"), min_size=1),
    partitions=st.integers(1, 30),
    factor=st.integers(1, 6),
    seed=st.integers(0, 1000),
)
def test_replicas_are_in_as_many_racks_as_can_be(
    racks: dict[int, str], partitions: int, factor: int, seed: int
) -> None:
    factor = min(factor, len(racks))
    assignment = assign_replicas_to_brokers(racks, range(partitions), factor, random.Random(seed))
    for replicas in assignment.values():
        assert len(set(replicas)) == factor
        assert len({racks[broker] for broker in replicas}) == min(factor, len(set(racks.values())))
    led = [sum(replicas[0] == broker for replicas in assignment.values()) for broker in racks]
    assert max(led) - min(led) <= 1


def test_one_broker_without_a_rack_has_all_placed_without() -> None:
    chosen = assign_replicas_to_brokers({0: "a", 1: "a", 2: None}, range(3), 2, random.Random(1))
    assert sorted(replicas[0] for replicas in chosen.values()) == [0, 1, 2]
