"""Committed offsets of a consumer group without members: they are read as the start of a read, and written for tools
that show lag.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..clients.cluster import BrokerNode
from ..clients.errors import code_of
from ..protocol.apis import ApiKey
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.find_coordinator import FindCoordinatorRequest
from ..protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ..protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ..protocol.negotiation import LAST_VERSIONS_BY_NAME
from ..protocol.topic_partition import TopicPartition, indexes_by_topic
from .client import BlockingClient

_LAST_COORDINATOR_VERSION_OF_ONE_KEY = 3
_LAST_FETCH_VERSION_OF_ONE_GROUP = 7


def commit_offsets(client: BlockingClient, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit as a group without members. Raises KafkaError, UNKNOWN_MEMBER_ID for a group with members."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for tp, offset in offsets.items():
        committed = OffsetCommitRequestPartition(
            partition_index=tp.partition, committed_offset=offset, committed_metadata=""
        )
        topics.setdefault(tp.topic, []).append(committed)
    request = OffsetCommitRequest(
        group_id=group_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=committed) for name, committed in topics.items()],
    )

    def attempt() -> None:
        connection = client.connection(_coordinator(client, group_id))
        for topic in connection.ask(request, highest=LAST_VERSIONS_BY_NAME[ApiKey.OFFSET_COMMIT]).topics:
            for partition in topic.partitions:
                if partition.error_code != ErrorCode.NONE:
                    raise KafkaError(code_of(partition.error_code), f"commit of group {group_id!r}")

    client.retrying(attempt)


def _coordinator(client: BlockingClient, group_id: str) -> int:
    request = FindCoordinatorRequest(key=group_id)
    found = client.any_connection().ask(request, highest=_LAST_COORDINATOR_VERSION_OF_ONE_KEY)
    if found.error_code != ErrorCode.NONE:
        raise KafkaError(code_of(found.error_code), f"coordinator of group {group_id!r}")
    client.cluster.add_brokers([BrokerNode(found.node_id, found.host, found.port)])
    return int(found.node_id)


def fetch_offsets(
    client: BlockingClient, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group, without partitions for which it has none. Raises KafkaError."""
    wanted = indexes_by_topic(partitions)
    topics = [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in wanted.items()]
    request = OffsetFetchRequest(group_id=group_id, topics=topics)

    def attempt() -> dict[TopicPartition, int]:
        response = client.connection(_coordinator(client, group_id)).ask(
            request, highest=_LAST_FETCH_VERSION_OF_ONE_GROUP
        )
        found: dict[TopicPartition, int] = {}
        codes = [response.error_code]
        for topic in response.topics:
            for partition in topic.partitions:
                codes.append(partition.error_code)
                if partition.committed_offset >= 0:
                    found[TopicPartition(topic.name, partition.partition_index)] = partition.committed_offset
        for code in codes:
            if code != ErrorCode.NONE:
                raise KafkaError(code_of(code), f"committed offsets of group {group_id!r}")
        return found

    return client.retrying(attempt)
