"""Target offsets of `reset-offsets`: one target for every partition, with the rules of kafka-consumer-groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.special_timestamps import EARLIEST, LATEST
from ..protocol.topic_partition import TopicPartition
from .admin import Admin, StreamsGroupDescription
from .admin.group_descriptions import DEAD

INACTIVE = ("Empty", DEAD)


class ResetKind(Enum):
    """Meaning of `ResetTarget.value`: none, a number of records, an offset, or a time in ms."""

    EARLIEST = "earliest"
    LATEST = "latest"
    CURRENT = "current"
    SHIFT = "shift"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """A target. CURRENT keeps the committed offset, without a committed offset it is the end of the log."""

    kind: ResetKind
    value: int = 0


class Reset(NamedTuple):
    """The change of one partition: from the committed offset (None: none) to an offset of the log or its end."""

    partition: TopicPartition
    before: int | None
    after: int


async def require_inactive(admin: Admin, group_id: str) -> None:
    """Raise KafkaError(NON_EMPTY_GROUP) if the group has members; a missing group is accepted."""
    described = (await admin.describe_groups([group_id]))[group_id]
    if isinstance(described, KafkaError):
        if described.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return
        raise described
    if described.state not in INACTIVE:
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP,
            f"Assignments can only be reset if the group '{group_id}' is inactive, "
            f"but the current state is {described.state}.",
        )


async def plan_reset(
    admin: Admin, group_id: str, partitions: Collection[TopicPartition] | None, target: ResetTarget
) -> list[Reset]:
    """Return the changes of these partitions, or of all with a committed offset (None). Raises KafkaError,
    ValueError.
    """
    committed = (await admin.list_group_offsets([group_id]))[group_id]
    if isinstance(committed, KafkaError):
        raise committed
    return await _plan(admin, {tp: at.offset for tp, at in committed.items()}, partitions, target)


async def require_empty_share_group(admin: Admin, group_id: str) -> None:
    """Raise KafkaError(NON_EMPTY_GROUP) if the share group has members; a missing group is accepted."""
    described = (await admin.describe_share_groups([group_id]))[group_id]
    if isinstance(described, KafkaError):
        if described.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return
        raise described
    if described.state not in INACTIVE:
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP,
            f"Share group '{group_id}' is not empty: it has {len(described.members)} members.",
        )


async def plan_share_reset(
    admin: Admin, group_id: str, partitions: Collection[TopicPartition] | None, target: ResetTarget
) -> list[Reset]:
    """Return the changes of the start offsets of a share group. Raises KafkaError, ValueError."""
    offsets = (await admin.list_share_group_offsets([group_id]))[group_id]
    if isinstance(offsets, KafkaError):
        if offsets.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise offsets
        offsets = {}
    before = {tp: at.start_offset for tp, at in offsets.items() if at.start_offset is not None}
    return await _plan(admin, before, offsets.keys() if partitions is None else partitions, target)


def require_inactive_streams_group(group: StreamsGroupDescription) -> None:
    """Raise KafkaError(NON_EMPTY_GROUP) if the streams group has members."""
    if group.state not in INACTIVE:
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP,
            f"Assignments can only be reset if the group '{group.group_id}' is inactive, "
            f"but the current state is {group.state}.",
        )


async def plan_streams_reset(
    admin: Admin,
    group: StreamsGroupDescription,
    partitions: Collection[TopicPartition] | None,
    target: ResetTarget,
) -> list[Reset]:
    """Return the changes of these partitions of input topics, or of all with a committed offset (None).

    Raises KafkaError, and ValueError for topics that are not source topics of the group's topology: a reset of a
    repartition topic would process records again that an earlier subtopology wrote.
    """
    offsets = (await admin.list_streams_group_offsets([group.group_id]))[group.group_id]
    if isinstance(offsets, KafkaError):
        raise offsets
    inputs = set(group.input_topics())
    unknown = {tp.topic for tp in partitions or ()} - inputs
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))}: not an input topic of group {group.group_id!r}")
    before = {tp: at.offset for tp, at in offsets.items() if tp.topic in inputs}
    return await _plan(admin, before, partitions, target)


async def _plan(
    admin: Admin,
    before: Mapping[TopicPartition, int],
    partitions: Collection[TopicPartition] | None,
    target: ResetTarget,
) -> list[Reset]:
    wanted = sorted(before if partitions is None else partitions)
    first = {tp: at.offset for tp, at in (await admin.list_offsets(dict.fromkeys(wanted, EARLIEST))).items()}
    end = {tp: at.offset for tp, at in (await admin.list_offsets(dict.fromkeys(wanted, LATEST))).items()}
    if target.kind is ResetKind.TIME:
        found = await admin.list_offsets(dict.fromkeys(wanted, target.value))
        after = {tp: at.offset if at.offset >= 0 else end[tp] for tp, at in found.items()}
    else:
        after = {tp: _target_of(tp, target, before, first[tp], end[tp]) for tp in wanted}
    return [Reset(tp, before.get(tp), min(max(after[tp], first[tp]), end[tp])) for tp in wanted]


def _target_of(
    tp: TopicPartition, target: ResetTarget, before: Mapping[TopicPartition, int], first: int, end: int
) -> int:
    match target.kind:
        case ResetKind.EARLIEST:
            return first
        case ResetKind.LATEST:
            return end
        case ResetKind.CURRENT:
            return before.get(tp, end)
        case ResetKind.OFFSET:
            return target.value
    if tp not in before:
        raise ValueError(f"{tp}: cannot shift the offset, no offset is committed")
    return before[tp] + target.value
