"""What a client believes about the cluster when news come late, in pieces, or twice."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from barnabas.clients.client import parse_bootstrap
from barnabas.clients.cluster import BrokerNode, ClusterView
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.topic_partition import TopicPartition

T0 = TopicPartition("t", 0)


def news(leader: int, epoch: int, *, topic_id: int = 1, **topic: Any) -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=n, host=f"b{n}", port=9092) for n in (1, 2)]
    partition = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
    fields: dict[str, Any] = {"name": "t", "topic_id": UUID(int=topic_id), "partitions": [partition]} | topic
    return MetadataResponse(brokers=brokers, topics=[MetadataResponseTopic(**fields)])


def test_a_leader_epoch_never_goes_back() -> None:
    cluster = ClusterView()
    cluster.update(news(1, 5))
    cluster.update(news(2, 4))
    assert (cluster.leader(T0), cluster.leader_epoch(T0)) == (1, 5)
    cluster.update(news(2, 6))
    assert (cluster.leader(T0), cluster.leader_epoch(T0)) == (2, 6)


def test_a_topic_made_anew_forgets_the_old_epochs() -> None:
    cluster = ClusterView()
    cluster.update(news(1, 5))
    cluster.update(news(2, 0, topic_id=2))
    assert (cluster.leader(T0), cluster.leader_epoch(T0)) == (2, 0)
    assert cluster.topic_name(UUID(int=1)) is None
    assert cluster.topic_name(UUID(int=2)) == "t"


def test_leader_hints_count_if_they_are_newer() -> None:
    cluster = ClusterView()
    cluster.update(news(1, 5))
    assert not cluster.update_leader(T0, 2, 5)
    assert cluster.update_leader(T0, 3, 6)
    assert cluster.leader(T0) is None
    cluster.add_brokers([BrokerNode(3, "b3", 9092)])
    assert cluster.leader(T0) == 3
    assert not cluster.update_leader(TopicPartition("u", 0), 1, 1)


def test_a_passing_error_leaves_what_is_known_and_a_deletion_does_not() -> None:
    cluster = ClusterView()
    cluster.update(news(1, 5))
    cluster.update(news(1, 5, partitions=[], error_code=ErrorCode.LEADER_NOT_AVAILABLE))
    assert cluster.leader(T0) == 1
    cluster.update(news(1, 5, partitions=[], error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert cluster.leader(T0) is None
    assert cluster.topics["t"].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_partitions_without_leader_are_listed_and_not_available() -> None:
    cluster = ClusterView()
    cluster.update(news(-1, 5))
    assert cluster.leader(T0) is None
    assert list(cluster.topics["t"].partitions) == [0]
    assert cluster.topics["t"].available == ()


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1,b:2", [("a", 1), ("b", 2)]),
        ("a", [("a", 9092)]),
        (["a:1", "[::1]:3"], [("a", 1), ("::1", 3)]),
    ],
)
def test_bootstrap_servers(text: Any, addresses: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == addresses


@pytest.mark.parametrize("text", ["a:b", ":1", "", "a:1,", "a:0", "a:65536"])
def test_bootstrap_servers_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        parse_bootstrap(text)
