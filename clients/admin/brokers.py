"""Brokers: who is alive, and how full their log directories are."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import NamedTuple

from ...protocol.apis import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.describe_cluster import DescribeClusterRequest
from ...protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ...protocol.topic_partition import TopicPartition
from ..client import Client
from ..cluster import BrokerNode
from ..errors import code_of
from .outcomes import raise_error


class ClusterDescription(NamedTuple):
    """The brokers that are alive; `controller_id` -1 while there is none."""

    cluster_id: str | None
    controller_id: int
    brokers: list[BrokerNode]


class LogDirDescription(NamedTuple):
    """One log directory of one broker; sizes in bytes, -1 where the broker does not tell (before 3.3)."""

    broker_id: int
    path: str
    error: ErrorCode
    total_bytes: int
    usable_bytes: int
    sizes: dict[TopicPartition, int]


class BrokerAdmin:
    """What `Admin` can tell of brokers."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def describe_cluster(self) -> ClusterDescription:
        """Cluster id, controller, brokers. Raises KafkaError."""
        connection = await self._client.any_connection()
        if not connection.supports(ApiKey.DESCRIBE_CLUSTER):
            await self._client.refresh_metadata()
            cluster = self._client.cluster
            return ClusterDescription(cluster.cluster_id, cluster.controller_id, _by_id(cluster.brokers.values()))
        response = await connection.send(DescribeClusterRequest())
        raise_error(response.error_code, response.error_message)
        brokers = [BrokerNode(b.broker_id, b.host, b.port, b.rack) for b in response.brokers]
        return ClusterDescription(response.cluster_id, response.controller_id, _by_id(brokers))

    async def describe_log_dirs(self, broker_ids: Collection[int] | None = None) -> list[LogDirDescription]:
        """The log directories of these brokers or all, with the size of every partition. Raises KafkaError."""
        ids = sorted(self._client.cluster.brokers if broker_ids is None else broker_ids)
        request = DescribeLogDirsRequest(topics=None)
        responses = await asyncio.gather(*(self._client.ask(broker_id, request) for broker_id in ids))
        log_dirs = []
        for broker_id, response in zip(ids, responses, strict=True):
            raise_error(response.error_code, f"log directories of broker {broker_id}")
            for r in response.results:
                sizes = {
                    TopicPartition(t.name, p.partition_index): p.partition_size for t in r.topics for p in t.partitions
                }
                log_dirs.append(
                    LogDirDescription(broker_id, r.log_dir, code_of(r.error_code), r.total_bytes, r.usable_bytes, sizes)
                )
        return log_dirs


def _by_id(brokers: Iterable[BrokerNode]) -> list[BrokerNode]:
    return sorted(brokers, key=lambda broker: broker.node_id)
