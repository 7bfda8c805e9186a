"""What brokers of a cluster on this machine know of each other, and what each is to the cluster."""

from __future__ import annotations

import asyncio
from collections import Counter

from ...protocol.errors import KafkaError
from ...protocol.messages.describe_cluster import DescribeClusterRequest
from ..connection import BrokerConnection, ConnectionOptions
from .local_cluster import HOST, LocalCluster, LocalProcess
from .session import Row

OPTIONS = ConnectionOptions(client_id="barnabas-cluster", request_timeout_ms=5000, connect_timeout_ms=5000)


async def all_know(cluster: LocalCluster) -> bool:
    """Whether every broker that runs knows of every other."""
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
    """What each process is to the cluster, as far as that can be learned."""
    unknown: Row = {"controller": None, "leads": None, "in sync": None}
    rows = [unknown] * len(cluster.members)
    running = [broker.address for broker in cluster.brokers if broker.pid() is not None]
    if not running:
        return rows
    from ..admin import Admin

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
        # Whoever was killed a moment ago is believed to be what it was until its session is over.
        rows[number] = {
            "controller": number == controller,
            "leads": leads[number],
            "in sync": f"{in_sync[number]} of {replicas[number]}",
        }
    return rows
