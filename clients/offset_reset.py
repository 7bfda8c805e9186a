"""Where `reset-offsets` moves a group to: one target for every partition, with the rules of kafka-consumer-groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.special_timestamps import EARLIEST, LATEST
from ..protocol.topic_partition import TopicPartition
from .admin import Admin
from .admin.group_descriptions import DEAD

INACTIVE = ("Empty", DEAD)


class ResetKind(Enum):
    """What `ResetTarget.value` is: nothing, a number of records, an offset, or a time in ms."""

    EARLIEST = "earliest"
    LATEST = "latest"
    CURRENT = "current"
    SHIFT = "shift"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """Where to. CURRENT keeps what is committed and begins at the end where nothing is."""

    kind: ResetKind
    value: int = 0


class Reset(NamedTuple):
    """One partition's step: from what is committed (None: nothing) to an offset that the log has or will have next."""

    partition: TopicPartition
    before: int | None
    after: int


async def require_inactive(admin: Admin, group_id: str) -> None:
    """Raise KafkaError(NON_EMPTY_GROUP) while the group has members; a group that does not exist is fine."""
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
    """The steps for these partitions, or all that the group has committed (None). Raises KafkaError, ValueError."""
    committed = (await admin.list_group_offsets([group_id]))[group_id]
    if isinstance(committed, KafkaError):
        raise committed
    before = {tp: at.offset for tp, at in committed.items()}
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
        raise ValueError(f"cannot shift the offset of {tp}: nothing is committed there")
    return before[tp] + target.value
