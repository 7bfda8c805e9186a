"""Three replicas under every mishap, in any order: what was acknowledged stays, and all end with the same bytes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.server.replication.replicas import LAG_SECONDS, NAME, Cluster, FakeLeader, Node, drive

from barnabas.server.replication.partition import Partition
from barnabas.server.replication.replica import Followers

Step = tuple[str, int, int]
"""What happens, on which broker, and a number for what is left open."""
USUAL = {
    "append": 12,
    "append 1": 2,
    "fetch": 30,
    "answer": 30,
    "order": 12,
    "lose": 2,
    "decide": 10,
    "unheard": 1,
    "elect": 1,
    "crash": 1,
    "restart": 3,
    "flush": 14,
    "lag": 1,
}
"""How often what happens."""
STEPS = st.lists(st.tuples(st.sampled_from(sorted(USUAL)), st.integers(1, 3), st.integers(0, 1000)), max_size=120)


def step(cluster: Cluster, action: str, node_id: int, number: int) -> None:
    node = cluster.nodes[node_id]
    if action == "append":
        cluster.append(node_id)
    elif action == "append 1":
        # What nobody wanted to have on a disk may be seen, and be gone after a loss of power.
        cluster.append(node_id, acks=-1 if cluster.on_disk else 1)
    elif action == "fetch":
        cluster.fetch(node_id)
    elif action in ("answer", "lose"):
        cluster.deliver_answer(node_id, lost=action == "lose")
    elif action == "order":
        cluster.deliver_order(node_id)
    elif action in ("decide", "unheard"):
        cluster.decide(node_id, answer_lost=action == "unheard")
    elif action == "elect":
        cluster.elect(number)
    elif action == "crash":
        mode: Any = ("kill", "A", "B")[number % 3] if cluster.on_disk else "kill"
        cluster.crash(node_id, mode, number, (number % 11) / 10)
    elif action == "restart":
        cluster.restart(node_id)
    elif action == "flush" and node.is_alive and node.wants_flush:
        node.flush()
    elif action == "lag" and node.is_alive:
        cluster.now += LAG_SECONDS * 0.7
        node.partition.shrink_isr()


def steps(seed: int, count: int = 400) -> Iterator[Step]:
    """Everything may happen, and in each history something else happens often."""
    rng = random.Random(seed)
    weights = [often * rng.choice([0.3, 1, 1, 2]) for often in USUAL.values()]
    for _ in range(count):
        yield rng.choices(list(USUAL), weights)[0], rng.randint(1, 3), rng.randint(0, 1000)


def play(seed: int) -> Cluster:
    cluster = Cluster(on_disk=seed % 2 == 0, fetch_version=17 if seed % 4 < 2 else 11)
    for one in steps(seed):
        step(cluster, *one)
    cluster.heal()
    cluster.check()
    return cluster


def test_nothing_acknowledged_is_lost() -> None:
    happened: Counter[str] = Counter()
    for seed in range(150):
        cluster = play(seed)
        happened.update(acked=len(cluster.acked), cut=cluster.truncations, elections=cluster.state.leader_epoch)
    assert happened["acked"] > 400
    assert happened["cut"] > 80
    assert happened["elections"] > 400


@pytest.mark.verify
def test_nothing_acknowledged_is_lost_in_many_histories() -> None:
    for seed in range(150, 4000):
        play(seed)


@pytest.mark.parametrize("fetch_version", [17, 11])
@pytest.mark.parametrize("on_disk", [False, True])
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=STEPS)
def test_nor_in_the_shortest_history_that_shows_it(history: list[Step], on_disk: bool, fetch_version: int) -> None:
    cluster = Cluster(on_disk=on_disk, fetch_version=fetch_version)
    for one in history:
        step(cluster, *one)
    cluster.heal()
    cluster.check()


def test_a_follower_asks_a_next_leader_when_all_it_has_is_on_its_disk() -> None:
    cluster = Cluster(on_disk=True)
    follower = cluster.nodes[2]
    cluster.append(1)
    cluster.fetch(2)
    follower.acks_all_on_disk = False
    cluster.deliver_answer(2)
    follower.acks_all_on_disk = True
    assert (follower.log.recovery_point, follower.log.log_end_offset) == (0, 1), "its sync is under way"
    cluster.elect()
    for node_id in cluster.nodes:
        cluster.deliver_order(node_id)
    assert follower.log.recovery_point == 0
    cluster.fetch(2)
    assert cluster._answers[2] and follower.log.recovery_point == 1


def test_a_fetcher_leaves_alone_what_has_been_given_to_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    node = cluster.nodes[2]
    cluster.append(1)
    cluster.fetch(2)
    cluster.deliver_answer(2)
    followed = node.fetcher._followed[NAME]

    async def offset(*_: object) -> int:
        node.fetcher.remove_partition(NAME)
        return 0

    monkeypatch.setattr(node.fetcher._leader, "fetch_offset", offset)
    drive(node.fetcher._fetch_offset_and_truncate(followed))
    assert node.log.log_end_offset == 1


def test_of_whose_answer_something_is_not_taken_over_is_asked_for_all_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session tells of a high watermark once only."""
    cluster = Cluster()
    follower, leader = cluster.nodes[2], cluster.nodes[2].fetcher._leader
    assert isinstance(leader, FakeLeader)
    cluster.append(1)
    cluster.fetch(2)
    cluster.deliver_answer(2)
    assert leader.sessions_forgotten == 0
    cluster.fetch(2)
    follower.log.truncate_to(0)
    cluster.deliver_answer(2)
    assert leader.sessions_forgotten == 1, "cut since it was asked for"
    cluster.fetch(2)
    cluster.deliver_answer(2)

    # The next leader has less.
    cluster.append(1)
    cluster.elect(1)
    for node_id in cluster.nodes:
        cluster.deliver_order(node_id)
    for _ in range(3):
        cluster.fetch(1)
        cluster.deliver_answer(1)
    assert cluster.truncations == 1
    first = cluster.nodes[1].fetcher._leader
    assert isinstance(first, FakeLeader) and first.sessions_forgotten == 1


async def _not_synced(_: Node, partitions: object) -> None:
    return None


MUTANTS: list[tuple[str, type, str, Any, int]] = [
    ("cut to the high watermark", Partition, "truncation_offset", lambda p, _: (p.log.high_watermark, True), 38),
    ("nobody tells where logs part", Partition, "find_diverging_epoch", lambda *_: None, 0),
    ("who follows another leader is not fenced", Partition, "fence", lambda *_: None, 978),
    ("the leader's disk does not count", Partition, "durable_end_offset", lambda p: p.log.log_end_offset, 0),
    (
        "followers are not waited for",
        Followers,
        "isr_min_log_end_offset",
        lambda _, leader_end, durable_end: durable_end,
        1,
    ),
    ("a follower's disk is not waited for", Node, "wait_until_flushed", _not_synced, 14),
]


@pytest.mark.parametrize(
    ("owner", "name", "wrong", "seed"), [row[1:] for row in MUTANTS], ids=[row[0] for row in MUTANTS]
)
def test_the_model_sees_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, wrong: Callable[..., Any], seed: int
) -> None:
    play(seed)
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises(AssertionError):
        play(seed)
