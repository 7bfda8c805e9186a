"""Overview and topics: list, settings and their sources; create, extend, change, delete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ...clients.admin import (
    BROKER_DEFAULT,
    ConfigChange,
    ConfigResource,
    NewTopic,
    raise_first,
)
from ...clients.cluster import TopicInfo
from ...common.uuid_text import uuid_text
from ...protocol.config_resources import ConfigOperation, ConfigResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.special_timestamps import EARLIEST, LATEST
from ...protocol.topic_partition import TopicPartition
from .cluster import WatchedCluster

Facts = dict[str, Any]


class TopicPages:
    """Responses as JSON. All methods raise KafkaError."""

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster

    async def overview(self) -> Facts:
        """Return brokers, the controller, and problems."""
        cluster, topics = await self._cluster.description.get(), await self._cluster.topics.get()
        partitions = [p for topic in topics for p in topic.partitions.values()]
        leads = Counter(p.leader_id for p in partitions)
        holds = Counter(replica for p in partitions for replica in p.replicas)
        behind = Counter(replica for p in partitions for replica in set(p.replicas) - set(p.in_sync_replicas))
        return {
            "cluster_id": cluster.cluster_id,
            "controller": cluster.controller_id,
            "topics": len(topics),
            "partitions": len(partitions),
            "under_replicated": sum(map(_under_replicated, topics)),
            "offline": leads[-1],
            "brokers": [
                {
                    "id": broker.node_id,
                    "address": f"{broker.host}:{broker.port}",
                    "rack": broker.rack,
                    "leads": leads[broker.node_id],
                    "holds": holds[broker.node_id],
                    "behind": behind[broker.node_id],
                }
                for broker in cluster.brokers
            ],
        }

    async def disks(self) -> Facts:
        """Return the use of log directories; nothing if brokers do not report it."""
        try:
            dirs = await self._cluster.log_dirs.get()
        except KafkaError:
            return {"dirs": []}
        return {
            "dirs": [
                {
                    "broker": one.broker_id,
                    "path": one.path,
                    "bytes": sum(one.sizes.values()),
                    "free": one.usable_bytes,
                    "total": one.total_bytes,
                    "error": one.error.name if one.error else None,
                }
                for one in dirs
            ]
        }

    async def listing(self) -> Facts:
        """Return a short row for each topic: there may be ten thousand."""
        return {
            "columns": ["name", "partitions", "replicas", "under_replicated", "internal"],
            "rows": [
                (
                    topic.name,
                    len(topic.partitions),
                    max((len(p.replicas) for p in topic.partitions.values()), default=0),
                    _under_replicated(topic),
                    int(topic.is_internal),
                )
                for topic in await self._cluster.topics.get()
            ],
        }

    async def sizes(self) -> Facts:
        """Return bytes by topic, without counting replicas twice; separate from the list, because it requires
        permission.
        """
        sizes: Counter[str] = Counter()
        for tp, size in (await self._sizes()).items():
            sizes[tp.topic] += size
        return {"sizes": sizes}

    async def partitions(self, name: str) -> Facts:
        """Return leaders and in-sync replicas of one topic."""
        topic = await self._topic(name)
        return {
            "name": name,
            "id": uuid_text(topic.topic_id),
            "internal": topic.is_internal,
            "columns": ["index", "leader", "epoch", "replicas", "in_sync"],
            "rows": [
                (p.index, p.leader_id, p.leader_epoch, p.replicas, p.in_sync_replicas)
                for _, p in sorted(topic.partitions.items())
            ],
        }

    async def extents(self, name: str) -> Facts:
        """Return start and end offset and bytes of each partition with a leader."""
        topic = await self._topic(name)
        led = [TopicPartition(name, p.index) for p in topic.partitions.values() if p.leader_id >= 0]
        first = await self._cluster.admin.list_offsets(dict.fromkeys(led, EARLIEST))
        end = await self._cluster.admin.list_offsets(dict.fromkeys(led, LATEST))
        sizes = await self._sizes()
        return {"extents": {tp.partition: (first[tp].offset, end[tp].offset, sizes.get(tp)) for tp in led}}

    async def configs(self, name: str) -> Facts:
        """Return effective settings, their sources, and their descriptions."""
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        found = await self._cluster.admin.describe_configs([resource], documentation=True)
        return {
            "configs": [
                {
                    "name": entry.name,
                    "value": entry.value,
                    "source": entry.source.name.lower().replace("_", " "),
                    "read_only": entry.read_only,
                    "sensitive": entry.is_sensitive,
                    "doc": entry.documentation,
                }
                for entry in found[resource]
            ]
        }

    async def create(self, body: Mapping[str, Any]) -> Facts:
        """Create a topic. Also raises ValueError for an invalid topic."""
        configs = body.get("configs") or {}
        if not isinstance(configs, Mapping):
            raise ValueError("configs: expected names with values")
        topic = NewTopic(
            str(body.get("name", "")),
            _number(body, "partitions", BROKER_DEFAULT),
            _number(body, "replication", BROKER_DEFAULT),
            {str(key): str(value) for key, value in configs.items()},
        )
        raise_first(await self._cluster.admin.create_topics([topic]))
        return self._changed()

    async def delete(self, name: str, body: Mapping[str, Any]) -> Facts:
        """Delete a topic whose name the user has entered."""
        if body.get("confirm") != name:
            raise ValueError("the entered name is not the name of the topic")
        raise_first(await self._cluster.admin.delete_topics([name]))
        return self._changed()

    async def grow(self, name: str, body: Mapping[str, Any]) -> Facts:
        """Increase the number of partitions to this total."""
        raise_first(await self._cluster.admin.create_partitions({name: _number(body, "partitions", 0)}))
        return self._changed()

    async def alter(self, name: str, body: Mapping[str, Any]) -> Facts:
        """Change one setting: its value, or None to reset it."""
        key, value = str(body.get("key", "")), body.get("value")
        how = ConfigOperation.DELETE if value is None else ConfigOperation.SET
        change = ConfigChange(key, None if value is None else str(value), how)
        raise_first(await self._cluster.admin.alter_configs({ConfigResource(ConfigResourceType.TOPIC, name): [change]}))
        return self._changed()

    async def _topic(self, name: str) -> TopicInfo:
        (topic,) = await self._cluster.admin.describe_topics([name])
        if topic.error is not ErrorCode.NONE:
            raise KafkaError(topic.error, f"topic {name!r}")
        return topic

    async def _sizes(self) -> dict[TopicPartition, int]:
        sizes: dict[TopicPartition, int] = {}
        try:
            dirs = await self._cluster.log_dirs.get()
        except KafkaError:
            return sizes  # without permission, or with brokers before 1.0
        for one in dirs:
            for tp, size in one.sizes.items():
                sizes[tp] = max(size, sizes.get(tp, 0))
        return sizes

    def _changed(self) -> Facts:
        self._cluster.forget()
        return {"done": True}


def _under_replicated(topic: TopicInfo) -> int:
    return sum(len(p.in_sync_replicas) < len(p.replicas) for p in topic.partitions.values())


def _number(body: Mapping[str, Any], name: str, otherwise: int) -> int:
    value = body.get(name)
    if value is None or value == "":
        return otherwise
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{name}: expected a number")
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{name}: expected a number, not {value!r}") from None
