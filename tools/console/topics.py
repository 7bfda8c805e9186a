"""Topics: list, partitions; create, clone, extend, empty, delete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ...clients.admin import BROKER_DEFAULT, HIGH_WATERMARK, ConfigResource, NewTopic, raise_first
from ...clients.cluster import TopicInfo
from ...common.uuid_text import uuid_text
from ...protocol.config_resources import ConfigResourceType, ConfigSource
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.special_timestamps import EARLIEST, LATEST
from ...protocol.topic_partition import TopicPartition
from .cluster import WatchedCluster

Facts = dict[str, Any]
_OF_REPLICAS = frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"})
"""Settings that name replicas of one topic and are of no use for another."""


class TopicPages:
    """Responses as JSON. All methods raise KafkaError."""

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster

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
        for tp, size in (await replica_sizes(self._cluster)).items():
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
        sizes = await replica_sizes(self._cluster)
        return {"extents": {tp.partition: (first[tp].offset, end[tp].offset, sizes.get(tp)) for tp in led}}

    async def create(self, body: Mapping[str, Any]) -> Facts:
        """Create a topic. Also raises ValueError for an invalid topic."""
        configs = body.get("configs") or {}
        if not isinstance(configs, Mapping):
            raise ValueError("configs: expected names with values")
        topic = NewTopic(
            str(body.get("name", "")),
            parse_number(body, "partitions", BROKER_DEFAULT),
            parse_number(body, "replication", BROKER_DEFAULT),
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
        raise_first(await self._cluster.admin.create_partitions({name: parse_number(body, "partitions", 0)}))
        return self._changed()

    async def clone(self, name: str, body: Mapping[str, Any]) -> Facts:
        """Create a topic with the partitions, the replication factor and the own settings of this one.

        Records are not copied. Also raises ValueError.
        """
        topic = await self._topic(name)
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        entries = (await self._cluster.admin.describe_configs([resource]))[resource]
        own = {
            entry.name: entry.value
            for entry in entries
            if entry.source is ConfigSource.TOPIC and entry.value is not None and entry.name not in _OF_REPLICAS
        }
        factor = max((len(p.replicas) for p in topic.partitions.values()), default=BROKER_DEFAULT)
        copy = NewTopic(str(body.get("name", "")), len(topic.partitions), factor, own)
        raise_first(await self._cluster.admin.create_topics([copy]))
        return self._changed()

    async def empty(self, name: str, body: Mapping[str, Any]) -> Facts:
        """Delete all present records of a topic whose name the user has entered. Also raises ValueError."""
        if body.get("confirm") != name:
            raise ValueError("the entered name is not the name of the topic")
        topic = await self._topic(name)
        leaderless = sorted(topic.partitions.keys() - set(topic.available))
        if leaderless:
            raise ValueError(f"partition {leaderless[0]} has no leader: nothing was deleted")
        partitions = [TopicPartition(name, index) for index in topic.partitions]
        outcomes = await self._cluster.admin.delete_records(dict.fromkeys(partitions, HIGH_WATERMARK))
        for outcome in outcomes.values():
            if isinstance(outcome, KafkaError):
                raise outcome
        return self._changed()

    async def _topic(self, name: str) -> TopicInfo:
        (topic,) = await self._cluster.admin.describe_topics([name])
        if topic.error is not ErrorCode.NONE:
            raise KafkaError(topic.error, f"topic {name!r}")
        return topic

    def _changed(self) -> Facts:
        self._cluster.forget()
        return {"done": True}


async def replica_sizes(cluster: WatchedCluster) -> dict[TopicPartition, int]:
    """Return the bytes of each partition, without counting replicas twice; none if brokers do not report them."""
    sizes: dict[TopicPartition, int] = {}
    try:
        dirs = await cluster.log_dirs.get()
    except KafkaError:
        return sizes  # without permission, or with brokers before 1.0
    for one in dirs:
        for tp, size in one.sizes.items():
            sizes[tp] = max(size, sizes.get(tp, 0))
    return sizes


def _under_replicated(topic: TopicInfo) -> int:
    return sum(len(p.in_sync_replicas) < len(p.replicas) for p in topic.partitions.values())


def parse_number(body: Mapping[str, Any], name: str, otherwise: int) -> int:
    """Parse an optional whole number. Raises ValueError."""
    value = body.get(name)
    if value is None or value == "":
        return otherwise
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{name}: expected a number")
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{name}: expected a number, not {value!r}") from None
