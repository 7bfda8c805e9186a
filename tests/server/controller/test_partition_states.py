"""The table of partition states, walked; elections and placement by their rules."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.server.controller.election import Election, elect, elect_preferred
from barnabas.server.controller.partition_states import TRANSITIONS, PartitionPhase, transition
from barnabas.server.controller.placement import assign_replicas

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
    assignment = assign_replicas(brokers, range(partitions), factor, random.Random(seed))
    assert list(assignment) == list(range(partitions))
    for replicas in assignment.values():
        assert len(set(replicas)) == factor
        assert set(replicas) <= set(brokers)
    led = [sum(replicas[0] == broker for replicas in assignment.values()) for broker in brokers]
    assert max(led) - min(led) <= 1


def test_more_partitions_go_on_where_the_first_began() -> None:
    first = assign_replicas([1, 2, 3], range(4), 2, random.Random(1), 2)
    more = assign_replicas([1, 2, 3], range(4, 8), 2, random.Random(2), 2)
    assert [replicas[0] for replicas in (first | more).values()] == [2, 3, 1, 2, 3, 1, 2, 3]
