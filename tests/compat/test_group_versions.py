"""The APIs of groups in every version: Apache Kafka and this broker give the same answers, field by field.

Kafka 3.9.1 serves the oldest versions, 4.4.0 the newest. Both are led through the same life of a group, with every
mistake on the way that a client can make, and what they made up themselves (member ids) is compared by who it names.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.barnabas_server import BarnabasServer
from tests.compat.answers import plain
from tests.kafka import KafkaServer
from tests.server.config.config_client import ConfigClient

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(240)]

SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
TOPIC = "t"
NEWEST_BY_NAME = 9
"""From OffsetCommit and OffsetFetch 10 on topics have ids."""
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
UNTOLD = {"throttle_time_ms", "host", "port", "error_message"}
"""Addresses, and words for people."""


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BarnabasServer(tmp_path_factory.mktemp("ours"), properties=SETTINGS) as server:
        yield prepared(server.bootstrap)


@pytest.fixture(scope="module", params=["3.9.1", "4.4.0"])
def theirs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder: Path = tmp_path_factory.mktemp("theirs")
    with KafkaServer(folder, version=request.param, properties=SETTINGS) as server:
        yield request.param, prepared(server.bootstrap)


def prepared(bootstrap: str) -> str:
    """The broker has the topic, and there is a coordinator for every group."""
    with closing(ConfigClient(bootstrap)) as client:
        topic = CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)
        answer = client.call(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        assert answer.topics[0].error_code in (0, 36)
        deadline = time.monotonic() + 60
        while not _is_coordinated(client):
            assert time.monotonic() < deadline, "no coordinator"
            time.sleep(0.1)
    return bootstrap


def _is_coordinated(client: ConfigClient) -> bool:
    if client.call(ApiKey.FIND_COORDINATOR, 2, FindCoordinatorRequest(key="g")).error_code:
        return False
    names = [f"g{number}" for number in range(1000)]  # of every partition of the coordinators' topic
    described = client.call(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=names)).groups
    return all(one.error_code == 0 for one in described)


class Life:
    """A life of a group at one broker; `told` is what was asked and answered."""

    def __init__(self, client: ConfigClient, group: str, version: int, *, newest: bool) -> None:
        self._client = client
        self.group = group
        self.newest = newest
        """Held against Kafka 4.4.0: in 3.9.1 a group without members is gone with its last offset."""
        self._version = version
        self.told: list[tuple[str, object]] = []
        self._names: dict[str, str] = {}

    def call(self, what: str, key: ApiKey, newest: int, request: Any) -> Any:
        """Ask in the version that is tried, or the newest there is of this API."""
        version = min(self._version, newest)
        answer = self._client.call(key, version, request)
        self.told.append((f"{what} v{version}", self._plain(answer)))
        return answer

    def _plain(self, value: Any) -> object:
        return plain(value, UNTOLD, self._names)

    def join(self, what: str, **fields: Any) -> Any:
        wanted = {
            "group_id": self.group,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
            **fields,
        }
        return self.call(what, ApiKey.JOIN_GROUP, 9, JoinGroupRequest(**wanted))

    def sync(self, what: str, member: str, generation: int, **fields: Any) -> None:
        assignment = SyncGroupRequestAssignment(member_id=member, assignment=b"yours")
        request = SyncGroupRequest(
            group_id=self.group,
            member_id=member,
            generation_id=generation,
            assignments=[assignment],
            **{"protocol_type": "consumer", "protocol_name": "range", **fields},
        )
        self.call(what, ApiKey.SYNC_GROUP, 5, request)

    def heartbeat(self, what: str, member: str, generation: int) -> None:
        request = HeartbeatRequest(group_id=self.group, member_id=member, generation_id=generation)
        self.call(what, ApiKey.HEARTBEAT, 4, request)

    def leave(self, what: str, *members: str) -> None:
        request = LeaveGroupRequest(group_id=self.group, member_id=members[0])
        if self._version >= 3:
            request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=one) for one in members])
        self.call(what, ApiKey.LEAVE_GROUP, 5, request)

    def commit(self, what: str, member: str, generation: int, *, topic: str = TOPIC, metadata: str = "m") -> None:
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=5 + index, committed_metadata=metadata)
            for index in (0, 7)
        ]
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)],
        )
        if self._version:
            self.call(what, ApiKey.OFFSET_COMMIT, NEWEST_BY_NAME, request)

    def fetch(self, what: str, group: str, topics: tuple[str, ...] | None) -> None:
        if self._version >= 8:
            wanted = None if topics is None else [_of_many(name) for name in topics]
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)])
        elif topics is None and self._version < 2:
            return
        else:
            asked = None if topics is None else [_of_one(name) for name in topics]
            request = OffsetFetchRequest(group_id=group, topics=asked)
        if self._version:
            self.call(what, ApiKey.OFFSET_FETCH, NEWEST_BY_NAME, request)

    def look(self, what: str) -> None:
        """Everything that can be seen of the group, and of none."""
        groups = DescribeGroupsRequest(groups=[self.group, "nobody", ""])
        self.call(f"describe {what}", ApiKey.DESCRIBE_GROUPS, 6 if self.newest else 5, groups)
        listed = self._client.call(ApiKey.LIST_GROUPS, min(self._version, 5), ListGroupsRequest())
        self.told.append((f"list {what}", [self._plain(one) for one in listed.groups if one.group_id == self.group]))
        self.fetch(f"fetch {what}", self.group, (TOPIC, "unknown"))
        self.fetch(f"fetch all {what}", self.group, None)
        self.fetch(f"fetch nobody's {what}", "nobody", (TOPIC,))

    def delete(self, what: str) -> None:
        request = DeleteGroupsRequest(groups_names=[self.group, "nobody", ""])
        answer = self._client.call(ApiKey.DELETE_GROUPS, min(self._version, 2), request)
        self.told.append((what, sorted((one.group_id, one.error_code) for one in answer.results)))

    def forget(self, what: str) -> None:
        partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 1, 7)]
        topics = [OffsetDeleteRequestTopic(name=name, partitions=partitions) for name in (TOPIC, "unknown")]
        self.call(what, ApiKey.OFFSET_DELETE, 0, OffsetDeleteRequest(group_id=self.group, topics=topics))


def _of_one(name: str) -> OffsetFetchRequestTopic:
    return OffsetFetchRequestTopic(name=name, partition_indexes=[0, 1, 7])


def _of_many(name: str) -> OffsetFetchRequestTopics:
    return OffsetFetchRequestTopics(name=name, topic_id=UUID(int=0), partition_indexes=[0, 1, 7])


def live(life: Life) -> None:
    """From the first mistake to the deletion."""
    life.look("before")
    life.join("join nothing", group_id="")
    life.join("join shortly", session_timeout_ms=1)
    life.join("join with nothing", protocols=[])
    life.join("join as nothing", protocol_type="")
    life.join("join as somebody else", member_id="config-client-x")
    life.commit("commit to nobody's", "config-client-x", 1)
    life.heartbeat("beat before", "config-client-x", 1)
    life.leave("leave before", "config-client-x")
    first = life.join("join")
    member = first.member_id
    if first.error_code:
        first = life.join("join again", member_id=member)
    generation = first.generation_id
    life.look("joined")
    life.heartbeat("beat joined", member, generation)
    life.commit("commit joined", member, generation)
    life.sync("sync another generation", member, generation + 1)
    life.sync("sync as somebody else", "config-client-x", generation)
    life.sync("sync another protocol", member, generation, protocol_name="roundrobin")
    life.sync("sync", member, generation)
    life.sync("sync again", member, generation)
    life.heartbeat("beat", member, generation)
    life.heartbeat("beat of another generation", member, generation + 1)
    life.heartbeat("beat of somebody else", "config-client-x", generation)
    life.commit("commit of another generation", member, generation + 1)
    life.commit("commit of somebody else", "config-client-x", generation)
    life.commit("commit from outside", "", -1)
    life.commit("commit to an unknown topic", member, generation, topic="unknown")
    life.commit("commit too much", member, generation, metadata="m" * 5000)
    life.commit("commit", member, generation)
    life.join("join with another protocol", protocols=[JoinGroupRequestProtocol(name="mine", metadata=b"")])
    life.join("join as another kind", protocol_type="connect")
    life.look("stable")
    life.forget("forget what is read")
    life.delete("delete what lives")
    life.leave("leave as somebody else", "config-client-x")
    life.leave("leave", member)
    life.leave("leave again", member)
    life.look("empty")
    life.commit("commit of an empty one", "", -1)
    life.commit("commit of a member that is gone", member, generation)
    life.look("committed")
    if life.newest:
        life.forget("forget")
        life.look("forgotten")
    life.delete("delete")
    life.look("deleted")


@pytest.mark.parametrize("version", range(10))
def test_a_life_in_every_version(version: int, theirs: tuple[str, str], ours: str) -> None:
    kafka, bootstrap = theirs
    if kafka == "4.4.0" and version < 2:
        pytest.skip("4.0 dropped these versions")
    lives = []
    for address in (bootstrap, ours):
        with closing(ConfigClient(address)) as client:
            life = Life(client, f"g{kafka}-{version}", version, newest=kafka == "4.4.0")
            live(life)
            lives.append(life.told)
    their_life, our_life = lives
    differences = [(a, b) for a, b in zip(their_life, our_life, strict=True) if a != b]
    assert not differences, "\n".join(f"{a}\n{b}" for a, b in differences)
