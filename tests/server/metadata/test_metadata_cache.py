"""What the cache tells, how long its answers last, and what they cost."""

from __future__ import annotations

import time
from uuid import UUID

import pytest

from barnabas.protocol.codec import encode_response
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.metadata.metadata_cache import MetadataCache, PartitionImage, TopicImage
from barnabas.server.metadata.znodes import BrokerEndpoint, BrokerInfo

IN, OUT = "IN", "OUT"


def broker(broker_id: int, *listeners: str) -> BrokerInfo:
    endpoints = tuple(BrokerEndpoint(name, f"{name.lower()}{broker_id}", 9092) for name in listeners)
    return BrokerInfo(broker_id, endpoints)


def topic(name: str, *partitions: PartitionImage, topic_id: int = 1) -> TopicImage:
    return TopicImage(name, UUID(int=topic_id), {partition.partition: partition for partition in partitions})


def cluster() -> MetadataCache:
    """Brokers 1 on both listeners and 2 on one; broker 3 is away."""
    cache = MetadataCache("c")
    cache.set_brokers({2: broker(2, IN), 1: broker(1, IN, OUT)})
    cache.put_topics(
        [topic("t", PartitionImage(0, 1, 5, 0, (1, 2, 3), (1, 2)), PartitionImage(1, 3, 6, 0, (3, 1), (3,)))]
    )
    return cache


def test_topics_are_found_by_name_and_id_until_removed() -> None:
    cache = cluster()
    assert "t" in cache
    assert cache.topic_id("t") == UUID(int=1)
    assert cache.topic_name(UUID(int=1)) == "t"
    assert cache.topic_name(UUID(int=1)) == "t"
    assert cache.has_partition("t", 1)
    assert not cache.has_partition("t", 2)
    assert not cache.has_partition("u", 0)
    found = cache.partition(TopicPartition("t", 1))
    assert found is not None
    assert found.leader_epoch == 6
    assert list(cache.partitions()) == [TopicPartition("t", 0), TopicPartition("t", 1)]
    cache.remove_topics(["t", "never"])
    assert "t" not in cache
    assert cache.topic_name(UUID(int=1)) is None
    assert cache.response_topic("t", IN, 12) is None
    assert not list(cache.colliding_topics("t"))


def test_topic_made_anew_has_only_its_new_id() -> None:
    cache = cluster()
    cache.put_topics([topic("t", topic_id=2)])
    assert cache.topic_name(UUID(int=1)) is None
    assert cache.topic_name(UUID(int=2)) == "t"


def test_a_topic_whose_id_nobody_told_is_not_found_by_no_id() -> None:
    cache = cluster()
    cache.put_topics([topic("t", topic_id=0)])
    assert "t" in cache
    assert cache.topic_name(UUID(int=0)) is None
    cache.remove_topics(["t"])
    assert "t" not in cache


def test_names_that_differ_in_dot_and_underscore_collide() -> None:
    cache = cluster()
    cache.put_topics([topic("a.b", topic_id=3)])
    assert list(cache.colliding_topics("a_b")) == ["a.b"]
    assert not list(cache.colliding_topics("a.b")) and not list(cache.colliding_topics("a-b"))
    cache.put_topics([topic("a_b", topic_id=4), topic("a.b", topic_id=5)])
    assert list(cache.colliding_topics("a_b")) == ["a.b"] and list(cache.colliding_topics("a.b")) == ["a_b"]
    cache.remove_topics(["a.b"])
    assert list(cache.colliding_topics("a.b")) == ["a_b"] and not list(cache.colliding_topics("a_b"))
    cache.remove_topics(["a_b"])
    assert not list(cache.colliding_topics("a.b"))


def test_brokers_are_listed_by_listener() -> None:
    cache = cluster()
    assert [(b.node_id, b.host) for b in cache.response_brokers(IN)] == [(1, "in1"), (2, "in2")]
    assert [(b.node_id, b.host) for b in cache.response_brokers(OUT)] == [(1, "out1")]
    cache.set_brokers({2: broker(2, IN)})
    assert cache.response_brokers(OUT) == []


@pytest.mark.parametrize(
    ("listener", "version", "errors", "leaders", "replicas"),
    [
        (IN, 12, [0, ErrorCode.LEADER_NOT_AVAILABLE], [1, -1], [[1, 2, 3], [3, 1]]),
        (IN, 1, [0, ErrorCode.LEADER_NOT_AVAILABLE], [1, -1], [[1, 2, 3], [3, 1]]),
        (IN, 0, [ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE], [1, -1], [[1, 2], [1]]),
        (OUT, 0, [ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE], [1, -1], [[1], [1]]),
    ],
)
def test_partitions_without_a_reachable_leader(
    listener: str, version: int, errors: list[int], leaders: list[int], replicas: list[list[int]]
) -> None:
    answer = cluster().response_topic("t", listener, version)
    assert answer is not None
    assert answer.error_code == ErrorCode.NONE
    assert [p.error_code for p in answer.partitions] == errors
    assert [p.leader_id for p in answer.partitions] == leaders
    assert [p.leader_epoch for p in answer.partitions] == [5, 6]
    assert [p.replica_nodes for p in answer.partitions] == replicas


def test_leader_without_the_listener_has_its_own_error_since_version_6() -> None:
    cache = cluster()
    cache.put_topics([topic("u", PartitionImage(0, 2, 0, 0, (2,), (2,)), topic_id=9)])
    for version, code in ((5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)):
        answer = cache.response_topic("u", OUT, version)
        assert answer is not None
        assert answer.partitions[0].error_code == code
        assert answer.partitions[0].leader_id == -1


def test_offline_replicas_are_those_away_and_those_on_dead_disks() -> None:
    cache = cluster()
    cache.put_topics([topic("u", PartitionImage(0, 1, 0, 0, (1, 2, 3), (1,), offline_replicas=(2,)), topic_id=9)])
    answer = cache.response_topic("u", IN, 12)
    assert answer is not None
    assert answer.partitions[0].offline_replicas == [2, 3]


def test_a_copy_of_the_snapshot_is_changed_without_an_effect_on_the_cache() -> None:
    cache = cluster()
    before, version = cache.response_topic("t", IN, 12), cache.version
    removed: list[list[str]] = []
    cache.on_topics_removed.append(removed.append)
    kept = cache.snapshot
    copy = kept.copy()
    copy.set_brokers({1: broker(1, IN)}, {2: broker(2, IN)})
    copy.put_topics([topic("a.b", topic_id=9)])
    gone = copy.remove_topics(["t"])
    assert cache.response_topic("t", IN, 12) is before
    assert (sorted(cache.brokers), list(cache.topic_names), cache.version) == ([1, 2], ["t"], version)
    assert not list(cache.colliding_topics("a_b"))
    cache.set_snapshot(copy)
    assert (sorted(cache.brokers), sorted(cache.fenced_brokers)) == ([1], [2])
    assert (list(cache.topic_names), list(cache.colliding_topics("a_b"))) == (["a.b"], ["a.b"])
    assert cache.topic_name(UUID(int=1)) is None
    assert cache.version > version
    assert removed == []
    cache.notify_removed(gone)
    assert removed == [["t"]]
    # A request that began before the change continues with its snapshot.
    assert kept.response_topic("t", IN, 12) is before
    assert [one.node_id for one in kept.response_brokers(IN)] == [1, 2]


def test_partitions_without_changes_are_not_described_again() -> None:
    cache = cluster()
    before = cache.response_topic("t", IN, 12)
    former = cache.topic("t")
    assert before is not None and former is not None
    changed = PartitionImage(0, 2, 6, 1, (1, 2, 3), (2,))
    cache.put_topics([topic("t", changed, former.partitions[1])])
    after = cache.response_topic("t", IN, 12)
    assert after is not None
    assert [one.leader_id for one in after.partitions] == [2, -1]
    assert after.partitions[1] is before.partitions[1]
    cache.set_brokers({3: broker(3, IN)})
    again = cache.response_topic("t", IN, 12)
    assert again is not None
    assert [one.leader_id for one in again.partitions] == [-1, 3]


def test_answers_are_shared_until_something_changes() -> None:
    cache = cluster()
    cache.put_topics([topic("u", topic_id=9)])
    t, u = cache.response_topic("t", IN, 12), cache.response_topic("u", IN, 12)
    assert cache.response_topic("t", IN, 13) is t
    cache.put_topics([topic("t", PartitionImage(0, 2, 6, 1, (1, 2, 3), (2,)))])
    changed = cache.response_topic("t", IN, 12)
    assert changed is not None
    assert changed.partitions[0].leader_id == 2
    assert cache.response_topic("u", IN, 12) is u
    cache.set_brokers({1: broker(1, IN)})
    assert cache.response_topic("u", IN, 12) is not u


@pytest.mark.verify
def test_answer_for_a_thousand_partitions_costs_less_than_2_ms() -> None:
    cache = MetadataCache("c")
    cache.set_brokers({1: broker(1, IN)})
    for number in range(100):
        partitions = [PartitionImage(index, 1, 0, 0, (1,), (1,)) for index in range(10)]
        cache.put_topics([topic(f"t{number}", *partitions, topic_id=number + 1)])

    def answer() -> None:
        topics = [t for name in cache.topic_names if (t := cache.response_topic(name, IN, 12)) is not None]
        encode_response(MetadataResponse(brokers=cache.response_brokers(IN), cluster_id="c", topics=topics), 12)

    answer()
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        answer()
        times.append(time.perf_counter() - begin)
    assert min(times) < 0.002
