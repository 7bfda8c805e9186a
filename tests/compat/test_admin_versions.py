"""The admin APIs in every version: Apache Kafka and this broker give the same answers, errors included.

Kafka 3.9.1 serves the oldest versions, 4.4.0 the newest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from barnabas.protocol.messages import alter_partition_reassignments as reassign
from barnabas.protocol.messages import create_partitions as grow
from barnabas.protocol.messages import delete_records as purge
from barnabas.protocol.messages import describe_producers as producers
from barnabas.protocol.messages import describe_topic_partitions as partitions
from barnabas.protocol.messages import elect_leaders as elect
from barnabas.protocol.messages import list_partition_reassignments as moves
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(180)]

NODE = 1
TIMEOUT_MS = 20_000
NOBODY = UUID(int=7)
UNTOLD = {"throttle_time_ms", "host", "port", "error_message", "topic_id", "cluster_id", "log_dir", "configs"}
"""Of each broker its own, or words for people; configurations are compared elsewhere."""
UNTOLD |= {"partition_size", "total_bytes", "usable_bytes"}

Requests = Iterator[tuple[str, Any]]


def creations() -> Requests:
    def topic(name: str, count: int = 1, replicas: int = 1, **fields: Any) -> CreatableTopic:
        return CreatableTopic(name=name, num_partitions=count, replication_factor=replicas, **fields)

    def assigned(*replicas: list[int]) -> CreatableTopic:
        made = [CreatableReplicaAssignment(partition_index=n, broker_ids=ids) for n, ids in enumerate(replicas)]
        return topic("assigned", -1, -1, assignments=made)

    config = [CreatableTopicConfig(name="no.such.setting", value="1")]
    wrong = [CreatableTopicConfig(name="retention.ms", value="soon")]
    yield from (
        ("no name", topic("")),
        ("illegal name", topic("a b")),
        ("no partitions", topic("x", 0)),
        ("no replicas", topic("x", 1, 0)),
        ("too many replicas", topic("x", 1, 2)),
        ("unknown setting", topic("x", configs=config)),
        ("wrong setting", topic("x", configs=wrong)),
        ("there already", topic("t")),
        ("unknown broker", assigned([9])),
        ("broker twice", assigned([NODE, NODE])),
        ("nobody", assigned([])),
        ("assigned", assigned([NODE], [NODE])),
        ("new", topic("new")),
    )


def create(version: int) -> Requests:
    for what, topic in creations():
        topic.name = topic.name if topic.name in ("", "a b", "t") else f"{topic.name}-{version}"
        yield what, CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
    twice = [CreatableTopic(name="twice", num_partitions=1, replication_factor=1) for _ in range(2)]
    yield "twice", CreateTopicsRequest(topics=twice, timeout_ms=TIMEOUT_MS)


def delete(version: int) -> Requests:
    named = ["unknown", "a b", f"new-{version}"]
    if version < 6:
        yield "delete", DeleteTopicsRequest(topic_names=named, timeout_ms=TIMEOUT_MS)
        return
    topics = [DeleteTopicState(name=name) for name in named] + [DeleteTopicState(name=None, topic_id=NOBODY)]
    yield "delete", DeleteTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS)


def create_partitions(version: int) -> Requests:
    for count, ids in ((1, None), (2, None), (-1, None), (5, [[NODE]]), (3, [[9]]), (3, [[NODE, NODE]]), (3, [[]])):
        made = None if ids is None else [grow.CreatePartitionsAssignment(broker_ids=one) for one in ids]
        topics = [grow.CreatePartitionsTopic(name=name, count=count, assignments=made) for name in ("t", "unknown")]
        yield f"{count} {ids}", grow.CreatePartitionsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=True)


def delete_records(version: int) -> Requests:
    for offset in (0, 99, -1, -2):
        asked = [purge.DeleteRecordsPartition(partition_index=index, offset=offset) for index in (0, 9)]
        topics = [purge.DeleteRecordsTopic(name=name, partitions=asked) for name in ("t", "unknown")]
        yield str(offset), purge.DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS)


def elect_leaders(version: int) -> Requests:
    asked = [elect.TopicPartitions(topic=name, partitions=[0, 9]) for name in ("t", "unknown")]
    for kind in (0, 1) if version else (0,):
        yield f"{kind}", elect.ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=TIMEOUT_MS)


def reassignments(version: int) -> Requests:
    for replicas in ([NODE], [9], [NODE, NODE], [-1], [], None):
        asked = [reassign.ReassignablePartition(partition_index=index, replicas=replicas) for index in (0, 9)]
        topics = [reassign.ReassignableTopic(name=name, partitions=asked) for name in ("t", "unknown")]
        request = reassign.AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=TIMEOUT_MS)
        yield str(replicas), request


def list_reassignments(version: int) -> Requests:
    some = [moves.ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 9]) for name in ("t", "unknown")]
    for topics in (None, some):
        yield f"{topics is None}", moves.ListPartitionReassignmentsRequest(topics=topics, timeout_ms=TIMEOUT_MS)


def describe_producers(version: int) -> Requests:
    asked = [producers.TopicRequest(name=name, partition_indexes=[0, 9]) for name in ("t", "unknown", "a b")]
    yield "some", producers.DescribeProducersRequest(topics=asked)


def describe_partitions(version: int) -> Requests:
    names = [partitions.TopicRequest(name=name) for name in ("t", "unknown", "a b")]
    for limit in (1, 2, 100):
        yield f"{limit}", partitions.DescribeTopicPartitionsRequest(topics=names, response_partition_limit=limit)
    for name, index in (("t", 1), ("t", -1), ("zzz", 0)):
        cursor = partitions.Cursor(topic_name=name, partition_index=index)
        yield f"{name} {index}", partitions.DescribeTopicPartitionsRequest(topics=names, cursor=cursor)


def describe_log_dirs(version: int) -> Requests:
    asked = [DescribableLogDirTopic(topic=name, partitions=[0, 9]) for name in ("t", "unknown")]
    yield "some", DescribeLogDirsRequest(topics=asked)


def describe_cluster(version: int) -> Requests:
    kinds = (1, 2, 3) if version else (1,)
    for kind in kinds:
        for told in (False, True):
            request = DescribeClusterRequest(include_cluster_authorized_operations=told)
            if version:
                request.endpoint_type = kind
            yield f"{kind} {told}", request


def quotas(version: int) -> Requests:
    for kind in ("user", "nonsense", ""):
        component = ComponentData(entity_type=kind, match_type=2, match=None)
        yield kind, DescribeClientQuotasRequest(components=[component], strict=False)
        yield f"{kind} twice", DescribeClientQuotasRequest(components=[component, component], strict=False)


def credentials(version: int) -> Requests:
    for names in ((), ("bob",), ("bob", "bob"), ("bob", "")):
        yield f"{names}", DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names] or None)


def transactions(version: int) -> Requests:
    for states in ([], ["Ongoing", "Sleeping"]):
        yield f"{states}", ListTransactionsRequest(state_filters=states)
    if version >= 2:
        for pattern in ("", "a.*", "a["):
            yield pattern, ListTransactionsRequest(transactional_id_pattern=pattern)


def describe_transactions(version: int) -> Requests:
    # One that is well formed alone: Kafka answers for it once its own topic of transactions is there.
    yield "no name", DescribeTransactionsRequest(transactional_ids=[""])


Cases = dict[ApiKey, tuple[int, int, int, Callable[[int], Requests]]]
CASES: Cases = {
    ApiKey.CREATE_TOPICS: (0, 2, 7, create),
    ApiKey.DELETE_TOPICS: (0, 1, 6, delete),
    ApiKey.CREATE_PARTITIONS: (0, 0, 3, create_partitions),
    ApiKey.DELETE_RECORDS: (0, 0, 2, delete_records),
    ApiKey.ELECT_LEADERS: (0, 0, 2, elect_leaders),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 0, 0, reassignments),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0, 0, list_reassignments),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0, 0, describe_producers),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0, 0, describe_partitions),
    ApiKey.DESCRIBE_LOG_DIRS: (0, 1, 4, describe_log_dirs),
    ApiKey.DESCRIBE_CLUSTER: (0, 0, 1, describe_cluster),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 0, 1, quotas),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0, 0, credentials),
    ApiKey.LIST_TRANSACTIONS: (0, 0, 1, transactions),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0, 0, describe_transactions),
}
"""The lowest version of Kafka 3.9.1 and of 4.4.0, the highest of both, and what is asked."""


@pytest.fixture(scope="module", params=["3.9.1", "4.4.0"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, str]]:
    """A release of Kafka, its address and ours; both have the topic `t`."""
    folders: list[Path] = [tmp_path_factory.mktemp(name) for name in ("theirs", "ours")]
    with KafkaServer(folders[0], version=request.param) as kafka, BarnabasServer(folders[1]) as barnabas:
        for bootstrap in (kafka.bootstrap, barnabas.bootstrap):
            with closing(ConfigClient(bootstrap)) as client:
                client.create_topic("t")
        yield request.param, kafka.bootstrap, barnabas.bootstrap


@pytest.mark.parametrize("key", CASES, ids=lambda key: key.name.lower())
def test_every_version_answers_alike(key: ApiKey, both: tuple[str, str, str]) -> None:
    release, *addresses = both
    lowest, lowest_of_4, highest, requests = CASES[key]
    told: list[list[tuple[str, object]]] = []
    for address in addresses:
        with closing(ConfigClient(address)) as client:
            told.append(
                [
                    (f"v{version} {what}", plain(client.call(key, version, request), UNTOLD))
                    for version in range(lowest_of_4 if release == "4.4.0" else lowest, highest + 1)
                    for what, request in requests(version)
                ]
            )
    differences = [(a, b) for a, b in zip(*told, strict=True) if a != b]
    assert not differences, "\n".join(f"{a}\n{b}" for a, b in differences)
