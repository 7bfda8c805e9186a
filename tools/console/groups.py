"""Groups: members, lag, resets and deletions of offsets, removal of members."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ...clients.admin import ShareGroupDescription, StreamsGroupDescription, StreamsTask, raise_first
from ...clients.admin.share_groups import SHARE
from ...clients.admin.streams_groups import STREAMS
from ...clients.offset_reset import (
    ResetKind,
    ResetTarget,
    plan_reset,
    plan_share_reset,
    plan_streams_reset,
    require_empty_share_group,
    require_inactive,
    require_inactive_streams_group,
)
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from .cluster import WatchedCluster
from .group_summaries import GroupSummaries, PartitionProgress, TopicProgress

Facts = dict[str, Any]

MAX_NAMES = 100
"""Maximum number of tasks of a kind per member, of subtopologies, and of topics of a kind per subtopology that
a page shows: a topology can have thousands of topics and tasks, and the page is refreshed every two seconds.
"""
MAX_LISTED_TOPICS = 5
"""Maximum number of topic names per group in the list of groups."""


class GroupPages:
    """Responses as JSON. All methods raise KafkaError."""

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster
        self._summaries = GroupSummaries(cluster)

    async def listing(self) -> Facts:
        """Return a row for each group."""
        return {
            "groups": [
                {"id": g.group_id, "protocol": g.protocol_type, "state": g.state, "type": g.type}
                for g in await self._cluster.admin.list_groups()
            ]
        }

    async def lags(self, topic: str = "") -> Facts:
        """Return members, topics and lag of each group; separate from the list, because it takes longer.

        Topics with a name that contains `topic` are sorted first, so that a search finds a group by each of its topics.
        """
        found = await self._summaries.get()
        wanted = topic.lower()
        return {
            "columns": ["members", "topics", "topic count", "lag", "uncommitted", "uncommitted lag", "error"],
            "groups": {
                group_id: (
                    one.members,
                    sorted(one.topics, key=lambda name: (wanted not in name.lower(), name))[:MAX_LISTED_TOPICS],
                    len(one.topics),
                    sum(topic.lag for topic in one.topics.values()),
                    sum(topic.uncommitted for topic in one.topics.values()),
                    sum(topic.uncommitted_lag for topic in one.topics.values()),
                    one.error,
                )
                for group_id, one in found.items()
            },
        }

    async def consumers(self, topic: str) -> Facts:
        """Return the groups with an offset or a member for this topic."""
        listed, found = await asyncio.gather(self._cluster.admin.list_groups(), self._summaries.get())
        rows = [
            _consumer(group.group_id, group.state, group.type, progress)
            for group in listed
            if group.group_id in found and (progress := found[group.group_id].topics.get(topic)) is not None
        ]
        return {
            "columns": ["group", "state", "type", "members", "partitions", "lag", "uncommitted", "uncommitted lag"],
            "rows": rows,
            "unknown": sum(one.error is not None for one in found.values()),
        }

    async def one(self, group_id: str) -> Facts:
        """Return members, their assignments, and the lag of each partition."""
        admin = self._cluster.admin
        other = await self._share_or_streams_group(group_id)
        if isinstance(other, ShareGroupDescription):
            return await self._share(other)
        if other is not None:
            return await self._streams(other)
        group = (await admin.describe_groups([group_id]))[group_id]
        if isinstance(group, KafkaError):
            raise group
        progress = await self._summaries.partitions(group_id)
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
            **_lag(progress),
        }

    async def _share_or_streams_group(self, group_id: str) -> ShareGroupDescription | StreamsGroupDescription | None:
        """Return a share group or a streams group; None for another group, and from brokers without these types."""
        admin = self._cluster.admin
        share, streams = await asyncio.gather(
            admin.describe_share_groups([group_id]), admin.describe_streams_groups([group_id])
        )
        for found in (share[group_id], streams[group_id]):
            if not isinstance(found, KafkaError):
                return found
            if found.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise found
        return None

    async def _share(self, group: ShareGroupDescription) -> Facts:
        """Return the facts of a share group: start offsets in place of committed ones, and no owner of a partition."""
        offsets = (await self._cluster.admin.list_share_group_offsets([group.group_id]))[group.group_id]
        if isinstance(offsets, KafkaError):
            raise offsets
        return {
            "id": group.group_id,
            "type": SHARE,
            "state": group.state,
            "assignor": group.assignor,
            "coordinator": group.coordinator,
            "members": [
                {
                    "id": member.member_id,
                    "instance": None,
                    "client": member.client_id,
                    "host": member.host,
                    "partitions": len(member.assigned),
                }
                for member in group.members
            ],
            "columns": ["topic", "partition", "start offset", "end", "lag", "client", "member"],
            "rows": [(*tp, offsets[tp].start_offset, None, offsets[tp].lag, None, None) for tp in sorted(offsets)],
            "lag": sum(one.lag or 0 for one in offsets.values()),
            "uncommitted": 0,
            "uncommitted_lag": 0,
        }

    async def _streams(self, group: StreamsGroupDescription) -> Facts:
        """Return the facts of a streams group: its topology, and the tasks of each member."""
        progress = await self._summaries.partitions(group.group_id)
        owned = Counter(found.one.member_id for found in progress if found.one.member_id is not None)
        return {
            "id": group.group_id,
            "type": STREAMS,
            "state": group.state,
            "assignor": group.assignor,
            "coordinator": group.coordinator,
            "group_epoch": group.group_epoch,
            "target_assignment_epoch": group.target_assignment_epoch,
            "topology_epoch": group.topology_epoch,
            "topology": [
                {
                    "id": one.subtopology_id,
                    "source": one.source_topics[:MAX_NAMES],
                    "repartition_source": [t.name for t in one.repartition_source_topics[:MAX_NAMES]],
                    "repartition_sink": one.repartition_sink_topics[:MAX_NAMES],
                    "changelog": [t.name for t in one.state_changelog_topics[:MAX_NAMES]],
                }
                for one in group.subtopologies[:MAX_NAMES]
            ],
            "members": [
                {
                    "id": member.member_id,
                    "instance": member.group_instance_id,
                    "client": member.client_id,
                    "host": member.host,
                    "partitions": owned[member.member_id],
                    "process": member.process_id,
                    "active": _tasks(member.assignment.active),
                    "standby": _tasks(member.assignment.standby),
                    "warmup": _tasks(member.assignment.warmup),
                    "is_reconciled": member.assignment == member.target_assignment,
                }
                for member in group.members
            ],
            **_lag(progress),
        }

    async def reset(self, group_id: str, body: Mapping[str, Any]) -> Facts:
        """Return the preview of a reset, which `set_offsets` executes. Raises ValueError, too."""
        try:
            target = ResetTarget(ResetKind(body.get("kind")), int(body.get("value") or 0))
        except (TypeError, ValueError):
            raise ValueError("expected kind earliest, latest, shift, offset or time, and a number as value") from None
        admin = self._cluster.admin
        group = await self._share_or_streams_group(group_id)
        await self._require_no_members(group_id, group)
        topic = body.get("topic")
        partitions = None if not topic else await admin.partitions_of(str(topic))
        if isinstance(group, StreamsGroupDescription):
            steps = await plan_streams_reset(admin, group, partitions, target)
        else:
            plan = plan_reset if group is None else plan_share_reset
            steps = await plan(admin, group_id, partitions, target)
        return {
            "columns": ["topic", "partition", "before", "after"],
            "rows": [(*step.partition, step.before, step.after) for step in steps],
        }

    async def set_offsets(self, group_id: str, body: Mapping[str, Any]) -> Facts:
        """Execute exactly the steps of a preview. Raises ValueError, also if the group has committed since."""
        admin, steps = self._cluster.admin, _steps(body.get("rows"))
        group = await self._share_or_streams_group(group_id)
        is_share = isinstance(group, ShareGroupDescription)
        await self._require_no_members(group_id, group)
        present = await (self._start_offsets if is_share else self._committed)(group_id)
        for partition, before, _ in steps:
            if present.get(partition) != before:
                raise ValueError(f"{partition} has changed since the preview: reload it")
        offsets = {partition: after for partition, _, after in steps}
        alter = admin.alter_share_group_offsets if is_share else admin.alter_group_offsets
        raise_first(await alter(group_id, offsets))
        return self._changed()

    async def delete(self, group_id: str, body: Mapping[str, Any]) -> Facts:
        """Delete a group without members and its offsets. The user has entered its id."""
        if body.get("confirm") != group_id:
            raise ValueError("the entered name is not the id of the group")
        raise_first(await self._cluster.admin.delete_groups([group_id]))
        return self._changed()

    async def delete_offsets(self, group_id: str, body: Mapping[str, Any]) -> Facts:
        """Delete the offsets of a topic without a subscribed member. Raises ValueError, too."""
        topic, admin = body.get("topic"), self._cluster.admin
        if not isinstance(topic, str) or not topic:
            raise ValueError("topic: expected the name of a topic")
        group = await self._share_or_streams_group(group_id)
        if isinstance(group, ShareGroupDescription):
            raise_first(await admin.delete_share_group_offsets(group_id, [topic]))
            return self._changed()
        # The topic may have been deleted since, and its committed offsets remain.
        partitions = [tp for tp in await self._committed(group_id) if tp.topic == topic]
        if not partitions:
            raise ValueError(f"the group has no committed offsets for {topic}")
        delete = admin.delete_group_offsets if group is None else admin.delete_streams_group_offsets
        raise_first(await delete(group_id, partitions))
        return self._changed()

    async def remove_members(self, group_id: str, body: Mapping[str, Any]) -> Facts:
        """Remove a static member by its `instance`, or all members. Live members join again."""
        instance, admin = body.get("instance"), self._cluster.admin
        if instance is not None and not isinstance(instance, str):
            raise ValueError("instance: expected a group.instance.id")
        if await self._share_or_streams_group(group_id) is not None:
            raise ValueError(f"{group_id} is a share group or a streams group, whose members cannot be removed")
        removed = await admin.remove_members(group_id, None if instance is None else [instance])
        raise_first(removed)
        self._changed()
        return {"removed": len(removed)}

    def _changed(self) -> Facts:
        self._summaries.forget()
        return {"done": True}

    async def _require_no_members(
        self, group_id: str, group: ShareGroupDescription | StreamsGroupDescription | None
    ) -> None:
        """Raise KafkaError(NON_EMPTY_GROUP) if the group has members."""
        if isinstance(group, StreamsGroupDescription):
            require_inactive_streams_group(group)
        elif group is not None:
            await require_empty_share_group(self._cluster.admin, group_id)
        else:
            await require_inactive(self._cluster.admin, group_id)

    async def _committed(self, group_id: str) -> Mapping[TopicPartition, int | None]:
        committed = (await self._cluster.admin.list_group_offsets([group_id]))[group_id]
        if isinstance(committed, KafkaError):
            raise committed
        return {partition: at.offset for partition, at in committed.items()}

    async def _start_offsets(self, group_id: str) -> Mapping[TopicPartition, int | None]:
        offsets = (await self._cluster.admin.list_share_group_offsets([group_id]))[group_id]
        if isinstance(offsets, KafkaError):
            raise offsets
        return {partition: at.start_offset for partition, at in offsets.items()}


def _consumer(group_id: str, state: str, kind: str, progress: TopicProgress) -> tuple[object, ...]:
    return (
        group_id,
        state,
        kind,
        len(progress.members),
        progress.partitions,
        progress.lag,
        progress.uncommitted,
        progress.uncommitted_lag,
    )


def _lag(progress: Sequence[PartitionProgress]) -> Facts:
    """Return a row for each partition, and the sums. The total includes partitions without a committed offset."""
    uncommitted = [found for found in progress if found.is_uncommitted]
    return {
        "columns": ["topic", "partition", "committed", "end", "lag", "client", "member"],
        "rows": [
            (*one.partition, one.committed, one.end, lag, one.client_id, one.member_id)
            for one, lag in ((found.one, found.lag) for found in progress)
        ],
        "lag": sum(found.lag or 0 for found in progress),
        "uncommitted": len(uncommitted),
        "uncommitted_lag": sum(found.lag or 0 for found in uncommitted),
    }


def _tasks(tasks: Sequence[StreamsTask]) -> Facts:
    """Return the number of tasks and the first names."""
    return {"count": len(tasks), "names": [str(task) for task in tasks[:MAX_NAMES]]}


def _steps(rows: Any) -> list[tuple[TopicPartition, int | None, int]]:
    """Parse the steps of a preview. Raises ValueError."""
    try:
        return [
            (TopicPartition(str(topic), int(partition)), None if before is None else int(before), int(after))
            for topic, partition, before, after in rows
        ]
    except (TypeError, ValueError):
        raise ValueError("rows: expected topic, partition, and the offset before and after") from None
