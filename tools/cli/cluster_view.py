"""The state of a local cluster from the view of its brokers."""

from __future__ import annotations

import asyncio
from collections import Counter

from ...clients.connection import BrokerConnection, ConnectionOptions
from ...protocol.errors import KafkaError
from ...protocol.messages.describe_cluster import DescribeClusterRequest
from .local_cluster import HOST, LocalCluster, LocalProcess
from .session import Row

OPTIONS = ConnectionOptions(client_id="barnabas-cluster", request_timeout_ms=5000, connect_timeout_ms=5000)


async def all_know(cluster: LocalCluster) -> bool:
    """Return whether every running broker has all other running brokers in its metadata."""
    running = {broker.number for broker in cluster.brokers if broker.pid() is not None}
    found = await asyncio.gather(*(_known_to(cluster.member(number)) for number in running))
    return all(known >= running for known in found)


async def _known_to(broker: LocalProcess) -> set[int]:
    try:
        connection = await BrokerConnection.open(HOST, broker.port, OPTIONS)
    except KafkaError:
        return set()
    try:
        response = await connection.send(DescribeClusterRequest())
        return set() if response.controller_id < 0 else {one.broker_id for one in response.brokers}
    except KafkaError:
        return set()
    finally:
        connection.close()


async def roles_in(cluster: LocalCluster) -> list[Row]:
    """Return the role of each process, as far as it can be determined."""
    unknown: Row = {"controller": None, "leads": None, "in sync": None}
    rows = [unknown] * len(cluster.members)
    running = [broker.address for broker in cluster.brokers if broker.pid() is not None]
    if not running:
        return rows
    from ...clients.admin import Admin

    try:
        async with Admin(running, request_timeout_ms=5000, default_api_timeout_ms=5000) as admin:
            controller = (await admin.describe_cluster()).controller_id
            topics = await admin.describe_topics()
    except (KafkaError, TimeoutError):
        return rows
    leads: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    in_sync: Counter[int] = Counter()
    for partition in (partition for topic in topics for partition in topic.partitions.values()):
        leads[partition.leader_id] += 1
        replicas.update(partition.replicas)
        in_sync.update(partition.in_sync_replicas)
    for number in (broker.number for broker in cluster.brokers):
        # A process killed a moment ago keeps its role until its session expires.
        rows[number] = {
            "controller": number == controller,
            "leads": leads[number],
            "in sync": f"{in_sync[number]} of {replicas[number]}",
        }
    return rows
