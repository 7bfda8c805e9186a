"""Summaries of all groups: members, topics, lag, and partitions without a committed offset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...clients.admin import GroupDescription, PartitionLag, ShareGroupDescription
from ...clients.admin.share_groups import SHARE
from ...clients.admin.streams_groups import StreamsGroupDescription
from ...clients.cluster import TopicInfo
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.special_timestamps import EARLIEST, LATEST
from ...protocol.topic_partition import TopicPartition
from .cluster import CachedResult, WatchedCluster

GroupOfAnyType = GroupDescription | StreamsGroupDescription | ShareGroupDescription
GROUPS_PER_REQUEST = 200
"""Groups whose offsets are held in memory at the same time."""
COORDINATOR_TIMEOUT_MS = 5000
"""The longest wait for the coordinators of these groups."""
_OUTAGES = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})
"""Errors of connections to the cluster. They are not the errors of single groups, so the groups are not divided."""


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The lag of a group in one partition.

    Without a committed offset, the lag is the number of offsets in the log, which is the work of a consumer with
    `auto.offset.reset=earliest`. It is None if the partition has no leader.
    """

    one: PartitionLag
    lag: int | None

    @property
    def is_uncommitted(self) -> bool:
        return self.one.committed is None and self.one.type != SHARE


@dataclass(slots=True)
class TopicProgress:
    """The sum over the partitions of a topic."""

    partitions: int = 0
    lag: int = 0
    uncommitted: int = 0
    uncommitted_lag: int = 0
    members: set[str] = field(default_factory=set)

    def add(self, found: PartitionProgress) -> None:
        self.partitions += 1
        self.lag += found.lag or 0
        self.members |= found.one.members
        if found.is_uncommitted:
            self.uncommitted += 1
            self.uncommitted_lag += found.lag or 0


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """One group: the number of its members, and its progress by topic; `error` is the reason if it is unknown."""

    members: int
    topics: Mapping[str, TopicProgress]
    error: str | None = None


class GroupSummaries:
    """The lag of all groups, which is expensive in a large cluster: the result is shared, and kept for eight times the
    duration of its computation, up to ten seconds.
    """

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster
        self._all = CachedResult(self._read)

    async def get(self) -> dict[str, GroupSummary]:
        """Return the summary of each group by its id. Raises KafkaError."""
        return await self._all.get()

    def forget(self) -> None:
        """Invalidate the result after a change."""
        self._all.forget()

    async def partitions(self, group_id: str) -> list[PartitionProgress]:
        """Return the lag of a group by partition. Raises KafkaError, also for a group that does not exist."""
        return await self._progress(await self._cluster.admin.group_lag([group_id]))

    async def _read(self) -> dict[str, GroupSummary]:
        ids = sorted(group.group_id for group in await self._cluster.admin.list_groups())
        found: dict[str, GroupSummary] = {}
        for start in range(0, len(ids), GROUPS_PER_REQUEST):
            found.update(await self._summaries(ids[start : start + GROUPS_PER_REQUEST]))
        return found

    async def _summaries(self, ids: Sequence[str]) -> dict[str, GroupSummary]:
        """Return summaries of some groups; a group that cannot be read, or is deleted now, has an error."""
        admin = self._cluster.admin
        described = await admin.describe_groups_of_all_types(ids, timeout_ms=COORDINATOR_TIMEOUT_MS)
        unavailable = {
            group_id: GroupSummary(0, {}, str(error))
            for group_id, error in described.items()
            if isinstance(error, KafkaError) and error.code.retriable
        }
        available = [group_id for group_id in ids if group_id not in unavailable]
        return {**unavailable, **(await self._available_summaries(available, described) if available else {})}

    async def _available_summaries(
        self, ids: Sequence[str], described: Mapping[str, GroupOfAnyType | KafkaError]
    ) -> dict[str, GroupSummary]:
        """Return summaries of some groups whose coordinators have responded."""
        try:
            progress = await self._progress(await self._cluster.admin.group_lag(ids))
        except KafkaError as error:
            if error.code in _OUTAGES:
                raise
            if len(ids) == 1:
                return {ids[0]: GroupSummary(0, {}, str(error))}
            half = len(ids) // 2
            return {
                **await self._available_summaries(ids[:half], described),
                **await self._available_summaries(ids[half:], described),
            }
        topics: dict[str, dict[str, TopicProgress]] = {group_id: {} for group_id in ids}
        for found in progress:
            of_group = topics[found.one.group_id]
            of_group.setdefault(found.one.partition.topic, TopicProgress()).add(found)
        summaries = {}
        for group_id in ids:
            group = described[group_id]
            members = 0 if isinstance(group, KafkaError) else len(group.members)
            summaries[group_id] = GroupSummary(members, topics[group_id])
        return summaries

    async def _progress(self, lags: Iterable[PartitionLag]) -> list[PartitionProgress]:
        """Add the partitions without a committed offset of each topic that a group reads, and their lag."""
        topics = {topic.name: topic for topic in await self._cluster.topics.get()}
        complete = _with_uncommitted(lags, topics)
        led = {
            one.partition
            for one in complete
            if one.committed is None and one.type != SHARE and one.partition.partition in _led(topics, one.partition)
        }
        admin = self._cluster.admin
        first = await admin.list_offsets(dict.fromkeys(led, EARLIEST)) if led else {}
        # The partitions that were added have no end; the others are read again, so that no lag is negative.
        ends = await admin.list_offsets(dict.fromkeys(led, LATEST)) if led else {}
        progress = []
        for one in complete:
            if one.partition in led and one.committed is None and one.type != SHARE:
                end = ends[one.partition].offset
                lag = max(0, end - first[one.partition].offset)
                progress.append(PartitionProgress(one._replace(end=end), lag))
            else:
                progress.append(PartitionProgress(one, one.lag))
        return progress


def _led(topics: Mapping[str, TopicInfo], partition: TopicPartition) -> tuple[int, ...]:
    topic = topics.get(partition.topic)
    return () if topic is None else topic.available


def _with_uncommitted(lags: Iterable[PartitionLag], topics: Mapping[str, TopicInfo]) -> list[PartitionLag]:
    """Add the partitions of the same topics that have neither an offset nor a member.

    A group without members lists only committed partitions. Share groups initialize all partitions of their topics.
    """
    by_topic: dict[tuple[str, str], list[PartitionLag]] = {}
    for one in lags:
        by_topic.setdefault((one.group_id, one.partition.topic), []).append(one)
    complete: list[PartitionLag] = []
    for (_, name), some in by_topic.items():
        missing: set[int] = set()
        if some[0].type != SHARE and name in topics:
            missing = topics[name].partitions.keys() - {one.partition.partition for one in some}
        empty = some[0]._replace(
            committed=None, end=None, lag=None, member_id=None, client_id=None, host=None, members=frozenset()
        )
        some += [empty._replace(partition=TopicPartition(name, index)) for index in missing]
        complete += sorted(some, key=lambda one: one.partition)
    return complete
