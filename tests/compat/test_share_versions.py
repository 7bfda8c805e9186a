"""ShareFetch, ShareAcknowledge and the APIs of share groups, field by field as Apache Kafka 4.4.0 answers them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.barnabas_server import BarnabasServer
from tests.compat.answers import differences
from tests.compat.test_share_group_state_topic import SETTINGS
from tests.kafka import KafkaServer
from tests.server.config.config_client import ConfigClient
from tests.server.data_plane import batch
from tests.server_process import wait_until

from barnabas.protocol.apis import ApiKey as K
from barnabas.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.share_acknowledge import (
    AcknowledgementBatch as Acknowledged,
)
from barnabas.protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from barnabas.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from barnabas.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.protocol.record_batch import iter_batches
from barnabas.protocol.schema import Message, fields_of

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(280)]

MEMBER = "mmmmmmmmmmmmmmmmmmmmmm"
UNKNOWN_ID = UUID("12345678-9abc-4def-8123-456789abcdef")
GROUP = 32
DEADLINE_S = 60
Ranges = list[tuple[int, int, list[int]]]


class Conversation:
    """The requests of one member of a group in one version, and the comparable responses."""

    def __init__(self, client: ConfigClient, version: int, topic_id: UUID) -> None:
        self.client, self.version, self.topic_id = client, version, topic_id
        self.group_id = f"g{version}"
        self.epoch = 0
        self.found: list[tuple[str, Any]] = []

    def note(self, what: str, response: Any) -> Any:
        self.found.append((what, comparable(response, self.topic_id)))
        return response

    def fetch(
        self,
        partitions: dict[int, Ranges] | None = None,
        *,
        topic_id: UUID | None = None,
        epoch: int | None = None,
        **fields: Any,
    ) -> Any:
        wanted = [
            FetchPartition(
                partition_index=index,
                acknowledgement_batches=[
                    AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                    for first, last, types in ranges
                ],
            )
            for index, ranges in (partitions or {}).items()
        ]
        values: dict[str, Any] = {
            "group_id": self.group_id,
            "member_id": MEMBER,
            "max_wait_ms": 500,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 100,
            "batch_size": 100,
        }
        request = ShareFetchRequest(
            **values | fields,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[FetchTopic(topic_id=topic_id or self.topic_id, partitions=wanted)] if wanted else [],
        )
        response = self.client.call(K.SHARE_FETCH, self.version, request)
        if not response.error_code and epoch is None:
            self.epoch += 1
        return response

    def fetch_until_acquired(self, what: str, partitions: dict[int, Ranges] | None = None, **fields: Any) -> None:
        """Fetch until records are acquired: a share-partition is loaded by the first fetch."""

        def has_acquired() -> bool:
            response = self.fetch(partitions, **fields)
            if not any(one.acquired_records for topic in response.responses for one in topic.partitions):
                return False
            self.note(what, response)
            return True

        wait_until(has_acquired, timeout_s=DEADLINE_S, what=what)

    def acknowledge(
        self,
        partitions: dict[int, Ranges],
        *,
        topic_id: UUID | None = None,
        epoch: int | None = None,
        **fields: Any,
    ) -> None:
        wanted = [
            AcknowledgePartition(
                partition_index=index,
                acknowledgement_batches=[
                    Acknowledged(first_offset=first, last_offset=last, acknowledge_types=types)
                    for first, last, types in ranges
                ],
            )
            for index, ranges in partitions.items()
        ]
        topic = AcknowledgeTopic(topic_id=topic_id or self.topic_id, partitions=wanted)
        values: dict[str, Any] = {"group_id": self.group_id, "member_id": MEMBER}
        request = ShareAcknowledgeRequest(
            **values | fields, share_session_epoch=self.epoch if epoch is None else epoch, topics=[topic]
        )
        response = self.client.call(K.SHARE_ACKNOWLEDGE, self.version, request)
        if not response.error_code and epoch is None:
            self.epoch += 1
        self.note(f"acknowledge {partitions} {fields}", response)

    def heartbeat(self, epoch: int, topics: list[str] | None = None) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=MEMBER, member_epoch=epoch, subscribed_topic_names=topics
        )
        return self.client.call(K.SHARE_GROUP_HEARTBEAT, 1, request)

    def join(self) -> None:
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group_id])

        def has_joined() -> bool:
            (coordinator,) = self.client.call(K.FIND_COORDINATOR, 4, find).coordinators
            return not coordinator.error_code and not self.heartbeat(0, ["t"]).error_code

        wait_until(has_joined, timeout_s=DEADLINE_S, what="the coordinator")

        def has_partitions() -> bool:
            # A join is answered with the whole assignment.
            response = self.heartbeat(0, ["t"])
            return response.assignment is not None and bool(response.assignment.topic_partitions)

        wait_until(has_partitions, timeout_s=DEADLINE_S, what="an assignment")

    def describe(self) -> None:
        self.note(
            "describe",
            self.client.call(K.SHARE_GROUP_DESCRIBE, 1, ShareGroupDescribeRequest(group_ids=[self.group_id])),
        )
        topics = [DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[0])]
        groups = [DescribeShareGroupOffsetsRequestGroup(group_id=self.group_id, topics=topics)]
        for version in (0, 1):
            request = DescribeShareGroupOffsetsRequest(groups=groups)
            self.note("offsets", self.client.call(K.DESCRIBE_SHARE_GROUP_OFFSETS, version, request))

    def talk(self) -> list[tuple[str, Any]]:
        self.note("no session", self.fetch(epoch=1))
        self.note("no session", self.fetch(epoch=-1))
        self.acknowledge({0: [(0, 0, [1])]}, epoch=1)
        self.acknowledge({0: [(0, 0, [1])]}, epoch=0)
        self.note("acknowledgements in the first", self.fetch({0: [(0, 0, [1])]}))
        for fields in ({"member_id": None}, {"member_id": ""}, {"group_id": None}, {"member_id": "m" * 37}):
            self.note(str(fields), self.fetch({0: []}, **fields))
        self.join()
        self.fetch_until_acquired("first", {0: []})
        self.note("nothing new", self.fetch())
        self.note("unknown partition", self.fetch({7: []}))
        self.note("unknown topic", self.fetch({0: []}, topic_id=UNKNOWN_ID))
        gone = [
            ForgottenTopic(topic_id=UNKNOWN_ID, partitions=[0]),
            ForgottenTopic(topic_id=self.topic_id, partitions=[7]),
        ]
        self.note("forgotten", self.fetch(forgotten_topics_data=gone))
        self.note("wrong epoch", self.fetch(epoch=1))
        self.acknowledge({0: [(0, 0, [1])]}, epoch=1)
        wrong: tuple[Ranges, ...] = (
            [(1, 0, [1])],
            [(0, 1, [])],
            [(0, 1, [1, 1, 1])],
            [(0, 0, [5])],
            [(0, 0, [-1])],
            [(1, 1, [1]), (0, 0, [1])],
            [(0, 1, [1]), (1, 2, [1])],
            [(0, 99, [1])],
            [(6, 7, [1])],
            [(0, 0, [4])],
            [(-1, 0, [9])],
        )
        for ranges in wrong:
            self.acknowledge({0: ranges})
        self.acknowledge({7: [(0, 0, [1])]})
        self.acknowledge({0: [(0, 0, [1])]}, topic_id=UNKNOWN_ID)
        self.acknowledge({0: []})
        self.acknowledge({0: [(0, 3, [1, 2, 3, 0])]})
        self.acknowledge({0: [(0, 0, [1])]})
        self.fetch_until_acquired("released", {0: [(4, 4, [2])]})
        if self.version > 1:
            self.acknowledge({0: [(1, 1, [4])]}, is_renew_ack=True)
            self.note("renewal", self.fetch({0: [(1, 1, [4])]}, is_renew_ack=True))
            none: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
            self.note("renewal", self.fetch({0: [(1, 1, [4])]}, is_renew_ack=True, **none))
        self.acknowledge({0: [(1, 1, [3])]})
        self.describe()
        self.acknowledge({0: [(5, 5, [1])]}, epoch=-1)
        self.acknowledge({0: [(5, 5, [1])]})
        self.note("leave", self.heartbeat(-1))
        return self.found


def comparable(value: Any, topic_id: UUID) -> Any:
    """The content of a response without the topic id, addresses and messages of errors."""
    if isinstance(value, Message):
        fields = {field.name: getattr(value, field.name) for field in fields_of(type(value))}
        for name in ("throttle_time_ms", "host", "port", "client_host", "error_message", "acknowledge_error_message"):
            fields.pop(name, None)
        if "records" in fields:
            fields["records"] = [
                record.value for one in iter_batches(fields["records"] or b"") for record in one.records()
            ]
        return {name: comparable(one, topic_id) for name, one in fields.items()}
    if isinstance(value, list):
        # Topics have the order of a hash in Kafka.
        return sorted((comparable(one, topic_id) for one in value), key=repr)
    return "t" if value == topic_id else value


def play(client: ConfigClient) -> list[list[tuple[str, Any]]]:
    client.create_topic("t")
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])

    def topic_id() -> UUID:
        (topic,) = client.call(K.METADATA, 12, request).topics
        return topic.topic_id if not topic.error_code and topic.partitions[0].leader_id >= 0 else UUID(int=0)

    wait_until(lambda: topic_id().int != 0, timeout_s=DEADLINE_S, what="the topic")
    for values in ([b"a", b"b", b"c"], [b"d", b"e", b"f"]):
        partition = PartitionProduceData(index=0, records=batch(*values))
        topic = TopicProduceData(name="t", partition_data=[partition])
        client.call(K.PRODUCE, 9, ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]))
    found = []
    for version in (1, 2):
        assert client.edit(GROUP, f"g{version}", ("share.auto.offset.reset", 0, "earliest")) == (0, None)
        wait_until(
            lambda: client.describe(GROUP, f"g{version}", ["share.auto.offset.reset"]).configs[0].value == "earliest",  # noqa: B023
            timeout_s=DEADLINE_S,
            what="the setting",
        )
        found.append(Conversation(client, version, topic_id()).talk())
    return found


def test_share_sessions_are_answered_as_by_kafka(tmp_path: Path) -> None:
    answers = []
    for server in (
        KafkaServer(tmp_path / "kafka", heap="512m", properties=SETTINGS),
        BarnabasServer(tmp_path / "ours", properties=SETTINGS),
    ):
        with server, closing(ConfigClient(server.bootstrap)) as client:
            answers.append(play(client))
    found = []
    for version, (theirs, ours) in enumerate(zip(*answers, strict=True), 1):
        assert [what for what, _ in theirs] == [what for what, _ in ours]
        for (what, their), (_, own) in zip(theirs, ours, strict=True):
            found += [f"v{version} {what}: {one}" for one in differences(their, own)]
    assert not found, "\n".join(found)
