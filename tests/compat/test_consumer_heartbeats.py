"""ConsumerGroupHeartbeat beside Apache Kafka 4.4.0: the epochs and assignments of literal and regular subscriptions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest
from tests.barnabas_server import BarnabasServer
from tests.kafka import KafkaServer
from tests.server.config.config_client import ConfigClient
from tests.server_process import wait_until

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(240)]

SETTINGS = {"group.consumer.assignment.interval.ms": "0", "group.initial.rebalance.delay.ms": "0"}
TOPICS = ("literal", "regular-1", "regular-2")
DEADLINE_S = 60
NOT_LOADED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
Seen = tuple[int, tuple[str, ...]]
"""The epoch of a member and the topics that are assigned to it."""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ConfigClient, ConfigClient]]:
    folders: list[Path] = [tmp_path_factory.mktemp(name) for name in ("theirs", "ours")]
    with (
        KafkaServer(folders[0], properties=SETTINGS) as kafka,
        BarnabasServer(folders[1], properties=SETTINGS) as barnabas,
        closing(ConfigClient(kafka.bootstrap)) as theirs,
        closing(ConfigClient(barnabas.bootstrap)) as ours,
    ):
        for client in (theirs, ours):
            for name in TOPICS:
                client.create_topic(name)
            prepare(client)
        yield theirs, ours


def prepare(client: ConfigClient) -> None:
    """Wait for the coordinator, and for the topics on the broker."""
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])

    def is_ready() -> bool:
        (coordinator,) = client.call(ApiKey.FIND_COORDINATOR, 4, find).coordinators
        return not coordinator.error_code and len(topic_names(client)) == len(TOPICS)

    wait_until(is_ready, timeout_s=DEADLINE_S, what="the coordinator and the topics")


def topic_names(client: ConfigClient) -> dict[UUID, str]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in TOPICS])
    topics = client.call(ApiKey.METADATA, 12, request).topics
    return {topic.topic_id: topic.name for topic in topics if not topic.error_code}


class Member:
    """A member of a consumer group that owns what is assigned to it."""

    def __init__(self, client: ConfigClient, group_id: str, member_id: str) -> None:
        self._client = client
        self._names = topic_names(client)
        self._ids = {"group_id": group_id, "member_id": member_id}
        self._owned: list[TopicPartitions] | None = None
        self.epoch = 0
        self.topics: tuple[str, ...] = ()

    def beat(self, **fields: object) -> Seen:
        request = ConsumerGroupHeartbeatRequest(**self._ids, member_epoch=self.epoch, **fields)  # type: ignore[arg-type]
        answer = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)

        def is_served() -> bool:
            nonlocal answer
            answer = self._client.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)
            return answer.error_code not in NOT_LOADED

        wait_until(is_served, timeout_s=DEADLINE_S, what="the coordinator of the group")
        assert not answer.error_code, answer.error_message
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.topics = tuple(sorted(self._names[part.topic_id] for part in answer.assignment.topic_partitions))
        return self.epoch, self.topics

    def join(self, names: list[str], regex: str | None) -> Seen:
        return self.beat(
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=names,
            subscribed_topic_regex=regex,
            topic_partitions=[],
        )

    def beat_until(self, topics: tuple[str, ...]) -> Seen:
        """Send heartbeats until these topics are assigned."""
        deadline = time.monotonic() + DEADLINE_S
        while (seen := self.beat())[1] != topics:
            assert time.monotonic() < deadline, seen
            time.sleep(0.05)
        return seen


@pytest.mark.parametrize(
    ("names", "regex", "first", "last"),
    [
        (["literal"], "regular.*", (2, ("literal",)), (3, TOPICS)),
        ([], "regular.*", (1, ()), (2, TOPICS[1:])),
        (["literal"], "nothing.*", (2, ("literal",)), (2, ("literal",))),
        (["literal", "missing"], None, (2, ("literal",)), (2, ("literal",))),
        (["missing"], None, (2, ()), (2, ())),
        ([], "", (1, ()), (1, ())),
    ],
)
def test_first_and_last_assignment(
    both: tuple[ConfigClient, ConfigClient], names: list[str], regex: str | None, first: Seen, last: Seen
) -> None:
    for client in both:
        member = Member(client, f"{names}{regex}", "m")
        assert member.join(names, regex) == first
        assert member.beat_until(last[1]) == last


def test_a_second_member_with_a_resolved_expression(both: tuple[ConfigClient, ConfigClient]) -> None:
    for client in both:
        one, other = Member(client, "second", "m1"), Member(client, "second", "m2")
        one.join([], "regular.*")
        assert one.beat_until(TOPICS[1:]) == (2, TOPICS[1:])
        assert other.join([], "regular.*") == (3, ())
