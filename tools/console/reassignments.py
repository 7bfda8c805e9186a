"""Reassignments of replicas and elections of leaders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...clients.admin import ElectionType, raise_first, spread_replicas
from ...clients.cluster import PartitionInfo
from ...clients.replication_throttle import remove_throttles, throttle_reassignment
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from .cluster import WatchedCluster

Facts = dict[str, Any]
MAX_MOVED = 5000
"""Partitions of one plan or one election."""
MAX_LISTED = 5000
"""Rows of a list of partitions."""


class ReassignmentPages:
    """Responses as JSON. All methods raise KafkaError; methods with a body raise ValueError, too."""

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster

    async def listing(self) -> Facts:
        """Return the partitions that are moving, and the partitions whose leader is not their first replica."""
        moving = await self._cluster.admin.list_partition_reassignments()
        found = await self._partitions()
        needed = [
            (tp.topic, tp.partition, info.leader_id, info.replicas[0], info.in_sync_replicas)
            for tp, info in sorted(found.items())
            if info.replicas and info.leader_id != info.replicas[0]
        ]
        return {
            "moving": [
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "replicas": one.replicas,
                    "adding": one.adding_replicas,
                    "removing": one.removing_replicas,
                    "in_sync": found[tp].in_sync_replicas if tp in found else (),
                }
                for tp, one in sorted(moving.items())[:MAX_LISTED]
            ],
            "moving_count": len(moving),
            "brokers": [one.node_id for one in (await self._cluster.description.get()).brokers if not one.is_fenced],
            "columns": ["topic", "partition", "leader", "preferred", "in_sync"],
            "elections": needed[:MAX_LISTED],
            "election_count": len(needed),
        }

    async def plan(self, body: Mapping[str, Any]) -> Facts:
        """Return a plan that spreads the replicas of topics over brokers and racks. Nothing is moved."""
        topics, ids = body.get("topics"), body.get("brokers")
        if not isinstance(topics, list) or not topics:
            raise ValueError("topics: expected names of topics")
        if not isinstance(ids, list) or not ids:
            raise ValueError("brokers: expected ids of brokers")
        wanted = sorted({int(one) for one in ids})
        live = {one.node_id: one.rack for one in (await self._cluster.description.get()).brokers if not one.is_fenced}
        unknown = [one for one in wanted if one not in live]
        if unknown:
            raise ValueError(f"broker {unknown[0]} is not live")
        found = await self._partitions([str(name) for name in topics])
        _require_bounded(found)
        factor = int(body.get("replication_factor") or 0)
        if factor < 0:
            raise ValueError("replication_factor: expected a number from 1 on")
        factors = {tp: factor or len(info.replicas) for tp, info in found.items()}
        after = spread_replicas(factors, wanted, live)
        return {
            "columns": ["topic", "partition", "before", "after"],
            "rows": [(*tp, found[tp].replicas, after[tp]) for tp in sorted(after)],
        }

    async def execute(self, body: Mapping[str, Any]) -> Facts:
        """Begin to move partitions exactly as in the rows of a plan, with an optional `throttle` in bytes/s."""
        steps = _steps(body.get("rows"))
        throttle = int(body.get("throttle") or 0)
        if throttle < 0:
            raise ValueError("throttle: expected bytes per second")
        found = await self._partitions(sorted({tp.topic for tp, _, _ in steps}))
        for tp, before, _ in steps:
            if tp not in found or list(found[tp].replicas) != before:
                raise ValueError(f"{tp} has changed since the preview: make a new plan")
        after = {tp: replicas for tp, before, replicas in steps if before != replicas}
        if not after:
            raise ValueError("the plan moves no partition")
        admin = self._cluster.admin
        if throttle:
            await throttle_reassignment(admin, {tp: found[tp].replicas for tp in after}, after, throttle)
        raise_first(await admin.alter_partition_reassignments(after))
        self._cluster.forget()
        return {"moving": len(after)}

    async def cancel(self, body: Mapping[str, Any]) -> Facts:
        """Cancel the reassignment of one partition, or all: the partitions keep their former replicas."""
        admin = self._cluster.admin
        moving = await admin.list_partition_reassignments()
        if "topic" in body:
            one = TopicPartition(str(body["topic"]), int(body.get("partition", -1)))
            moving = {tp: found for tp, found in moving.items() if tp == one}
        cancelled: dict[TopicPartition, Sequence[int] | None] = dict.fromkeys(moving)
        if cancelled:
            raise_first(await admin.alter_partition_reassignments(cancelled))
        self._cluster.forget()
        return {"cancelled": len(cancelled)}

    async def unthrottle(self) -> Facts:
        """Remove the throttles of all brokers and topics once nothing is moving."""
        admin = self._cluster.admin
        moving = await admin.list_partition_reassignments()
        if moving:
            raise ValueError(f"{len(moving)} partitions are still moving")
        await remove_throttles(admin)
        return {"done": True}

    async def elect(self, body: Mapping[str, Any]) -> Facts:
        """Elect leaders: `preferred` of all partitions or of some, `unclean` of a single partition."""
        kind = {"preferred": ElectionType.PREFERRED, "unclean": ElectionType.UNCLEAN}.get(str(body.get("kind")))
        if kind is None:
            raise ValueError("kind: expected preferred or unclean")
        named = None
        if "topic" in body:
            named = [TopicPartition(str(body["topic"]), int(body.get("partition", -1)))]
        if kind is ElectionType.UNCLEAN and named is None:
            raise ValueError("an unclean election requires a partition")
        outcomes = await self._cluster.admin.elect_leaders(kind, named)
        self._cluster.forget()
        errors = [
            f"{tp}: {error}"
            for tp, error in sorted(outcomes.items())
            if error is not None and error.code is not ErrorCode.ELECTION_NOT_NEEDED
        ]
        return {"elected": sum(error is None for error in outcomes.values()), "errors": errors[:20]}

    async def _partitions(self, names: Sequence[str] | None = None) -> dict[TopicPartition, PartitionInfo]:
        """Return the partitions of topics, or of all topics as they were up to a second ago. Raises KafkaError."""
        admin = self._cluster.admin
        topics = await self._cluster.topics.get() if names is None else await admin.describe_topics(names)
        for topic in topics:
            if topic.error and names is not None:
                raise KafkaError(topic.error, f"topic {topic.name}")
        return {TopicPartition(topic.name, one.index): one for topic in topics for one in topic.partitions.values()}


def _require_bounded(found: Mapping[TopicPartition, object]) -> None:
    if len(found) > MAX_MOVED:
        raise ValueError(f"{len(found)} partitions: the console moves up to {MAX_MOVED}. Use barnabas reassign")


def _steps(rows: Any) -> list[tuple[TopicPartition, list[int], list[int]]]:
    """Parse the rows of a plan. Raises ValueError."""
    try:
        steps = [
            (TopicPartition(str(topic), int(partition)), [int(one) for one in before], [int(one) for one in after])
            for topic, partition, before, after in rows
        ]
    except (TypeError, ValueError):
        raise ValueError("rows: expected topic, partition, and the replicas before and after") from None
    if len(steps) > MAX_MOVED:
        raise ValueError(f"rows: more than {MAX_MOVED} partitions")
    if any(not after or len(set(after)) < len(after) for _, _, after in steps):
        raise ValueError("rows: expected different replicas for each partition")
    return steps
