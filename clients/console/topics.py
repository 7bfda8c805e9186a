"""Overview and topics: what there is, its settings and where they come from; making, growing, changing, deleting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ...protocol.config_resources import ConfigOperation, ConfigResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.special_timestamps import EARLIEST, LATEST
from ...protocol.topic_partition import TopicPartition
from ...protocol.uuid_text import uuid_text
from ..admin import BROKER_DEFAULT, ConfigChange, ConfigResource, NewTopic, raise_first
from ..cluster import TopicInfo
from .cluster import WatchedCluster

Facts = dict[str, Any]


class TopicPages:
    """Answers as JSON takes them. All methods raise KafkaError."""

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster

    async def overview(self) -> Facts:
        """Brokers, the controller, and what is not as it should be."""
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
        """How full log directories are; nothing where brokers do not tell."""
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
        """A row for each topic, as short as can be: there may be ten thousand."""
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
        """Bytes by topic, replicas counted once; apart from the listing, as not all may ask for it."""
        sizes: Counter[str] = Counter()
        for tp, size in (await self._sizes()).items():
            sizes[tp.topic] += size
        return {"sizes": sizes}

    async def partitions(self, name: str) -> Facts:
        """Of one topic: who leads, who is in sync."""
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
        """Of one topic: first and next offset and bytes of each partition that has a leader."""
        topic = await self._topic(name)
        led = [TopicPartition(name, p.index) for p in topic.partitions.values() if p.leader_id >= 0]
        first = await self._cluster.admin.list_offsets(dict.fromkeys(led, EARLIEST))
        end = await self._cluster.admin.list_offsets(dict.fromkeys(led, LATEST))
        sizes = await self._sizes()
        return {"extents": {tp.partition: (first[tp].offset, end[tp].offset, sizes.get(tp)) for tp in led}}

    async def configs(self, name: str) -> Facts:
        """Settings in force, where each comes from, and what it is for."""
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
        """Also raises ValueError for what is no topic."""
        configs = body.get("configs") or {}
        if not isinstance(configs, Mapping):
            raise ValueError("configs: names with values are expected")
        topic = NewTopic(
            str(body.get("name", "")),
            _number(body, "partitions", BROKER_DEFAULT),
            _number(body, "replication", BROKER_DEFAULT),
            {str(key): str(value) for key, value in configs.items()},
        )
        raise_first(await self._cluster.admin.create_topics([topic]))
        return self._changed()

    async def delete(self, name: str, body: Mapping[str, Any]) -> Facts:
        """Whoever deletes has written its name."""
        if body.get("confirm") != name:
            raise ValueError("the name that was written is not the topic's")
        raise_first(await self._cluster.admin.delete_topics([name]))
        return self._changed()

    async def grow(self, name: str, body: Mapping[str, Any]) -> Facts:
        """To so many partitions in all."""
        raise_first(await self._cluster.admin.create_partitions({name: _number(body, "partitions", 0)}))
        return self._changed()

    async def alter(self, name: str, body: Mapping[str, Any]) -> Facts:
        """One setting: its value, or None for what it is without."""
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
            return sizes  # without the right to ask, or of brokers before 1.0
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
        raise ValueError(f"{name}: a number is expected")
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{name}: a number is expected, not {value!r}") from None
