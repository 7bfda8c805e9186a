"""Kafka's EndpointToPartitionsManager: the partitions that instances can answer queries for. Pure functions."""

from __future__ import annotations

from collections.abc import Callable

from ..streams_group_member import StreamsGroupMember
from ..streams_heartbeat import EndpointToPartitions
from ..tasks import Tasks, task_union, without_epochs
from .configured_topology import ConfiguredTopology


def endpoint_to_partitions(
    member: StreamsGroupMember, topology: ConfiguredTopology | None, partition_count: Callable[[str], int | None]
) -> EndpointToPartitions | None:
    """Return the source partitions of a member's tasks, None if the member has no endpoint."""
    if member.user_endpoint is None:
        return None
    standby = task_union(member.assigned.standby, member.assigned.warmup)
    return EndpointToPartitions(
        member.user_endpoint,
        _source_partitions(without_epochs(member.assigned.active), topology, partition_count),
        _source_partitions(standby, topology, partition_count),
    )


def _source_partitions(
    tasks: Tasks, topology: ConfiguredTopology | None, partition_count: Callable[[str], int | None]
) -> dict[str, list[int]]:
    subtopologies = None if topology is None else topology.subtopologies
    found: dict[str, list[int]] = {}
    for name, partitions in sorted(tasks.items()):
        subtopology = (subtopologies or {}).get(name)
        if subtopology is None:
            continue  # the topics have changed, and the member has not revoked the task yet
        for topic in sorted(subtopology.source_topics | subtopology.repartition_source_topics.keys()):
            count = partition_count(topic) or 0
            if existing := sorted(partition for partition in partitions if partition < count):
                found[topic] = existing
    return found
