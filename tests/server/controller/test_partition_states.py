"""The table of partition states, walked; elections and placement by their rules."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.server.controller.election import Election, elect, elect_preferred
from barnabas.server.controller.partition_states import TRANSITIONS, PartitionPhase, transition
from barnabas.server.controller.placement import alternating_racks, assign_replicas

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


@pytest.mark.parametrize(("current", "target"), list(product(PartitionPhase, PartitionPhase)))
def test_exactly_kafkas_transitions_are_legal(current: PartitionPhase, target: PartitionPhase) -> None:
    if (current.name, target.name) in LEGAL:
        assert transition(current, target) is target
    else:
        with pytest.raises(AssertionError, match="cannot go from"):
            transition(current, target)


def test_every_state_can_be_left_and_reached() -> None:
    assert set(TRANSITIONS) == set(PartitionPhase)
    assert set().union(*TRANSITIONS.values()) == set(PartitionPhase)


def test_first_in_sync_live_replica_leads() -> None:
    assert elect((3, 1, 2), (2, 1), (1, 2, 3), allow_unclean=False) == Election(1, (2, 1))
    assert elect((3, 1, 2), (2, 1), (2, 3), allow_unclean=False) == Election(2, (2,))
    assert elect((3, 1, 2), (1,), (2, 3), allow_unclean=False) is None
    assert elect((3, 1, 2), (1,), (2, 3), allow_unclean=True) == Election(3, (3,), is_unclean=True)
    assert elect((3, 1), (1,), (), allow_unclean=True) is None


def test_preferred_leader_must_be_in_sync_and_live() -> None:
    assert elect_preferred((3, 1), (1, 3), (1, 3)) == Election(3, (1, 3))
    assert elect_preferred((3, 1), (1,), (1, 3)) is None
    assert elect_preferred((3, 1), (1, 3), (1,)) is None


@given(
    brokers=st.lists(st.integers(0, 99), min_size=1, max_size=7, unique=True),
    partitions=st.integers(1, 40),
    factor=st.integers(1, 7),
    seed=st.integers(),
)
def test_replicas_are_spread_evenly(brokers: list[int], partitions: int, factor: int, seed: int) -> None:
    factor = min(factor, len(brokers))
    assignment = assign_replicas(dict.fromkeys(brokers), range(partitions), factor, random.Random(seed))
    assert list(assignment) == list(range(partitions))
    for replicas in assignment.values():
        assert len(set(replicas)) == factor
        assert set(replicas) <= set(brokers)
    led = [sum(replicas[0] == broker for replicas in assignment.values()) for broker in brokers]
    assert max(led) - min(led) <= 1


def test_more_partitions_go_on_where_the_first_began() -> None:
    first = assign_replicas(dict.fromkeys([1, 2, 3]), range(4), 2, random.Random(1), 2)
    more = assign_replicas(dict.fromkeys([1, 2, 3]), range(4, 8), 2, random.Random(2), 2)
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
    assignment = assign_replicas(racks, range(partitions), factor, random.Random(seed))
    for replicas in assignment.values():
        assert len(set(replicas)) == factor
        assert len({racks[broker] for broker in replicas}) == min(factor, len(set(racks.values())))
    led = [sum(replicas[0] == broker for replicas in assignment.values()) for broker in racks]
    assert max(led) - min(led) <= 1


def test_one_broker_without_a_rack_has_all_placed_without() -> None:
    chosen = assign_replicas({0: "a", 1: "a", 2: None}, range(3), 2, random.Random(1))
    assert sorted(replicas[0] for replicas in chosen.values()) == [0, 1, 2]
