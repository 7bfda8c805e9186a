"""The state of a local cluster from the view of its brokers."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from ...clients.connection import BrokerConnection, ConnectionOptions
from ...protocol.errors import KafkaError
from ...protocol.messages.describe_cluster import DescribeClusterRequest
from .local_cluster import COORDINATOR, LocalCluster
from .local_process import HOST, LocalProcess
from .session import Row

if TYPE_CHECKING:
    from ...clients.admin import QuorumInfo

QUORUM_SECONDS = 5.0
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
    """Return the role of each process, in the order of `members`, as far as it can be determined."""
    quorum_columns: Row = {} if cluster.quorum is None else {"quorum": None, "lag": None}
    unknown: Row = {"controller": None, **quorum_columns, "leads": None, "in sync": None}
    rows = [unknown] * len(cluster.members)
    running = [broker.address for broker in cluster.brokers if broker.pid() is not None]
    if not running:
        return rows
    from ...clients.admin import Admin

    quorum: QuorumInfo | None = None
    try:
        async with Admin(running, request_timeout_ms=5000, default_api_timeout_ms=5000) as admin:
            topics = await admin.describe_topics()
            if cluster.quorum is None:
                controller = (await admin.describe_cluster()).controller_id
            else:
                # Without a leader of the quorum the other columns are still useful.
                with suppress(KafkaError, TimeoutError):
                    async with asyncio.timeout(QUORUM_SECONDS):
                        quorum = await admin.describe_metadata_quorum()
                controller = -1 if quorum is None else quorum.leader_id
    except (KafkaError, TimeoutError):
        return rows
    leads: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    in_sync: Counter[int] = Counter()
    for partition in (partition for topic in topics for partition in topic.partitions.values()):
        leads[partition.leader_id] += 1
        replicas.update(partition.replicas)
        in_sync.update(partition.in_sync_replicas)
    states = {} if quorum is None else {row["id"]: row for row in quorum_rows(quorum)}
    return [
        {
            # A process killed a moment ago keeps its role until its session expires.
            "controller": None if member.number == COORDINATOR else member.number == controller,
            **{name: states.get(member.number, {}).get(name) for name in quorum_columns},
            "leads": leads[member.number] if member in cluster.brokers else None,
            "in sync": f"{in_sync[member.number]} of {replicas[member.number]}" if member in cluster.brokers else None,
        }
        for member in cluster.members
    ]


def quorum_rows(quorum: QuorumInfo) -> list[Row]:
    """Return a row for each replica of the metadata log. The lag is counted in records."""
    return [
        {
            "id": replica.replica_id,
            "quorum": "leader" if replica.replica_id == quorum.leader_id else role,
            "log end": replica.log_end_offset if replica.log_end_offset >= 0 else None,
            "lag": quorum.lag(replica),
            "address": " ".join(f"{host}:{port}" for _, host, port in quorum.nodes.get(replica.replica_id, ())) or None,
        }
        for role, replicas in (("voter", quorum.voters), ("observer", quorum.observers))
        for replica in replicas
    ]
