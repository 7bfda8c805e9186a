"""Groups: who is in them, how far they are behind, and where they begin again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...protocol.errors import KafkaError
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
        """Shown first, done with `execute`. Raises ValueError, too."""
        admin = self._cluster.admin
        try:
            target = ResetTarget(ResetKind(body.get("kind")), int(body.get("value") or 0))
        except (TypeError, ValueError):
            raise ValueError("kind: earliest, latest, shift, offset or time is expected, and value a number") from None
        await require_inactive(admin, group_id)
        topic = body.get("topic")
        partitions = None if not topic else await admin.partitions_of(str(topic))
        steps = await plan_reset(admin, group_id, partitions, target)
        if body.get("execute") is True:
            raise_first(await admin.alter_group_offsets(group_id, {step.partition: step.after for step in steps}))
        return {
            "done": body.get("execute") is True,
            "columns": ["topic", "partition", "before", "after"],
            "rows": [(*step.partition, step.before, step.after) for step in steps],
        }
