"""Groups: who is in them, how far they are behind, and where they begin again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...protocol.errors import KafkaError
from ...protocol.topic_partition import TopicPartition
from ..admin import raise_first
from ..offset_reset import ResetKind, ResetTarget, plan_reset, require_inactive
from .cluster import WatchedCluster

Facts = dict[str, Any]


class GroupPages:
    """Answers as JSON takes them. All methods raise KafkaError."""

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster

    async def listing(self) -> Facts:
        """A row for each."""
        return {
            "groups": [
                {"id": g.group_id, "protocol": g.protocol_type, "state": g.state, "type": g.type}
                for g in await self._cluster.admin.list_groups()
            ]
        }

    async def one(self, group_id: str) -> Facts:
        """Members, what they are assigned, and the lag of each partition."""
        admin = self._cluster.admin
        group = (await admin.describe_groups([group_id]))[group_id]
        if isinstance(group, KafkaError):
            raise group
        lags = await admin.group_lag([group_id])
        return {
            "id": group_id,
            "type": group.type,
            "state": group.state,
            "assignor": group.assignor,
            "coordinator": group.coordinator,
            "members": [
                {
                    "id": member.member_id,
                    "instance": member.group_instance_id,
                    "client": member.client_id,
                    "host": member.host,
                    "partitions": len(member.assigned),
                }
                for member in group.members
            ],
            "columns": ["topic", "partition", "committed", "end", "lag", "client", "member"],
            "rows": [(*one.partition, one.committed, one.end, one.lag, one.client_id, one.member_id) for one in lags],
            "lag": sum(one.lag or 0 for one in lags),
        }

    async def reset(self, group_id: str, body: Mapping[str, Any]) -> Facts:
        """What a reset would do; `set_offsets` does what was shown. Raises ValueError, too."""
        try:
            target = ResetTarget(ResetKind(body.get("kind")), int(body.get("value") or 0))
        except (TypeError, ValueError):
            raise ValueError("kind: earliest, latest, shift, offset or time is expected, and value a number") from None
        admin = self._cluster.admin
        await require_inactive(admin, group_id)
        topic = body.get("topic")
        partitions = None if not topic else await admin.partitions_of(str(topic))
        steps = await plan_reset(admin, group_id, partitions, target)
        return {
            "columns": ["topic", "partition", "before", "after"],
            "rows": [(*step.partition, step.before, step.after) for step in steps],
        }

    async def set_offsets(self, group_id: str, body: Mapping[str, Any]) -> Facts:
        """Do the steps that `reset` has shown, and no others. Raises ValueError, too, as of a group that has moved."""
        admin, steps = self._cluster.admin, _steps(body.get("rows"))
        await require_inactive(admin, group_id)
        committed = (await admin.list_group_offsets([group_id]))[group_id]
        if isinstance(committed, KafkaError):
            raise committed
        for partition, before, _ in steps:
            at = committed.get(partition)
            if (None if at is None else at.offset) != before:
                raise ValueError(f"{partition} has moved since this was shown: look again")
        raise_first(await admin.alter_group_offsets(group_id, {partition: after for partition, _, after in steps}))
        return {"done": True}


def _steps(rows: Any) -> list[tuple[TopicPartition, int | None, int]]:
    """As `reset` tells them. Raises ValueError."""
    try:
        return [
            (TopicPartition(str(topic), int(partition)), None if before is None else int(before), int(after))
            for topic, partition, before, after in rows
        ]
    except (TypeError, ValueError):
        raise ValueError("rows: topic, partition, and the offset before and after are expected") from None
