"""Overview and brokers: live brokers and brokers that are down, their log directories and versions, and the partitions
with a problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...clients.admin import ClusterDescription, FeatureLevel, LogDirDescription
from ...clients.cluster import NO_LEADER, BrokerNode, PartitionInfo, TopicInfo
from ...protocol.errors import KafkaError
from .cluster import WatchedCluster
from .reassignments import MAX_LISTED

Facts = dict[str, Any]
RELEASES = (
    (31, "4.4"),
    (30, "4.3"),
    (28, "4.2"),
    (26, "4.1"),
    (22, "4.0"),
    (21, "3.9"),
    (20, "3.8"),
    (15, "3.7"),
    (12, "3.6"),
    (9, "3.5"),
    (8, "3.4"),
    (4, "3.3"),
)
"""The first level of `metadata.version` of each release, newest first (MetadataVersion.java)."""
LARGEST = 20
"""Number of the largest partitions that the page of a broker lists per log directory."""


def _is_under_replicated(info: PartitionInfo) -> bool:
    return len(info.in_sync_replicas) < len(info.replicas)


def _is_offline(info: PartitionInfo) -> bool:
    return info.leader_id == NO_LEADER


PROBLEMS: Mapping[str, Callable[[PartitionInfo], bool]] = {
    "under-replicated": _is_under_replicated,
    "offline": _is_offline,
}


class BrokerPages:
    """Responses as JSON. All methods raise KafkaError."""

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster
        self._known: dict[int, BrokerNode] = {}
        """All brokers that were live at some time since the start of the console, with their last addresses."""

    async def overview(self) -> Facts:
        """Return brokers, the controller, and the numbers of partitions with a problem."""
        cluster, topics = await self._cluster.description.get(), await self._cluster.topics.get()
        partitions = [p for topic in topics for p in topic.partitions.values()]
        return {
            "cluster_id": cluster.cluster_id,
            "controller": cluster.controller_id,
            "topics": len(topics),
            "partitions": len(partitions),
            "under_replicated": sum(map(_is_under_replicated, partitions)),
            "offline": sum(map(_is_offline, partitions)),
            "brokers": self._rows(cluster, partitions),
        }

    def _rows(self, cluster: ClusterDescription, partitions: list[PartitionInfo]) -> list[Facts]:
        """Return a row for each broker that is live or registered, that has replicas, or that was live earlier."""
        live = {one.node_id: one for one in cluster.brokers if not one.is_fenced}
        self._known |= {one.node_id: one for one in cluster.brokers}
        leaders = Counter(p.leader_id for p in partitions)
        replicas = Counter(replica for p in partitions for replica in p.replicas)
        behind = Counter(replica for p in partitions for replica in set(p.replicas) - set(p.in_sync_replicas))
        rows = []
        for broker_id in sorted({*live, *self._known, *replicas}):
            found = live.get(broker_id) or self._known.get(broker_id)
            rows.append(
                {
                    "id": broker_id,
                    "address": None if found is None else f"{found.host}:{found.port}",
                    "rack": None if found is None else found.rack,
                    "is_live": broker_id in live,
                    "leaders": leaders[broker_id],
                    "replicas": replicas[broker_id],
                    "behind": behind[broker_id],
                }
            )
        return rows

    async def problems(self, kind: str, broker: int | None) -> Facts:
        """Return the partitions with a problem, of all brokers or with a replica on one. Raises ValueError, too."""
        has_problem = PROBLEMS.get(kind)
        if has_problem is None:
            raise ValueError(f"problem: expected one of {', '.join(PROBLEMS)}")
        found = [
            (topic.name, p.index, p.leader_id, p.replicas, p.in_sync_replicas)
            for topic in sorted(await self._cluster.topics.get(), key=_name)
            for p in topic.partitions.values()
            if has_problem(p) and (broker is None or broker in set(p.replicas) - set(p.in_sync_replicas))
        ]
        return {
            "columns": ["topic", "partition", "leader", "replicas", "in_sync"],
            "rows": found[:MAX_LISTED],
            "count": len(found),
        }

    async def disks(self) -> Facts:
        """Return the use of log directories; nothing if brokers do not report it."""
        try:
            dirs = await self._cluster.log_dirs.get()
        except KafkaError:
            return {"dirs": []}
        return {"dirs": [_disk(one) for one in dirs]}

    async def one(self, broker_id: int) -> Facts:
        """Return one broker with its log directories, features and APIs. Raises ValueError for an unknown broker."""
        overview = await self.overview()
        row = next((one for one in overview["brokers"] if one["id"] == broker_id), None)
        if row is None:
            raise ValueError(f"the cluster has no broker {broker_id}")
        facts: Facts = {
            **row,
            "is_controller": overview["controller"] == broker_id,
            "dirs": [],
            "features": [],
            "version": None,
        }
        if not row["is_live"]:
            return facts
        admin = self._cluster.admin
        try:
            found = await admin.describe_log_dirs([broker_id])
            facts["dirs"] = [
                {
                    **_disk(one),
                    "largest": sorted(((size, *tp) for tp, size in one.sizes.items()), reverse=True)[:LARGEST],
                }
                for one in found
            ]
        except KafkaError as error:
            facts["dirs_missing"] = str(error)
        features = await admin.describe_features(broker_id)
        facts["features"] = [(one.name, one.finalized, one.supported_min, one.supported_max) for one in features]
        facts["version"] = _release(features)
        return facts


def _name(topic: TopicInfo) -> str:
    return topic.name


def _release(features: Sequence[FeatureLevel]) -> str | None:
    """Return the Kafka release of the newest `metadata.version` that a broker supports.

    No request returns the version of a broker. Brokers without KRaft's features, and before 3.3, have no release.
    """
    for one in features:
        if one.name == "metadata.version":
            return next((name for first, name in RELEASES if one.supported_max >= first), None)
    return None


def _disk(one: LogDirDescription) -> Facts:
    return {
        "broker": one.broker_id,
        "path": one.path,
        "partitions": len(one.sizes),
        "bytes": sum(one.sizes.values()),
        "free": one.usable_bytes,
        "total": one.total_bytes,
        "error": one.error.name if one.error else None,
    }
