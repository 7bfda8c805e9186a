"""The replay of `__consumer_offsets`: groups of all types with their offsets (Kafka: GroupCoordinatorShard.replay)."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from ....common.room_logger import room_logger
from ....protocol.codec import peek_version
from ....protocol.errors import ProtocolError
from ....protocol.topic_partition import TopicPartitionKey
from ...runtime.loop_sharing import CountBudget
from ...runtime.scheduler import IsolatedWork
from ..compacted_records import CompactedRecords
from .classic_group import ClassicGroup
from .consumer_group_loader import ConsumerGroupLoader
from .group import Group
from .group_records import OffsetId, read_group, read_key, read_offset
from .modern_group_loader import ModernGroupLoader
from .offsets import GroupOffsets
from .share.share_group_loader import ShareGroupLoader
from .streams.streams_group_loader import StreamsGroupLoader

logger = room_logger("groups")

LOADED_OFFSETS_PER_TURN = 10
"""Groups and committed offsets that are built from loaded records in one turn of the loop. They are kept, which costs
the garbage collector time, too.
"""


async def load_groups(records: CompactedRecords, now_ms: int) -> dict[str, Group]:
    """Return the groups in the records of a partition, in slices of the event loop; drains `records`."""
    loader = GroupLoader(now_ms)
    budget = CountBudget(LOADED_OFFSETS_PER_TURN)
    isolated = IsolatedWork("a record of a group is skipped")
    for key, value in records.drain():
        with isolated:
            loader.replay(key, value)
        await budget.step()
    # In the order of the log: of two offsets for a partition, the later one counts.
    for producer_id, key, _, value in sorted(records.pending(), key=itemgetter(2)):
        with isolated:
            loader.replay_pending_offset(producer_id, key, value)
        await budget.step()
    return loader.groups()


class GroupLoader:
    """The groups of one partition while its records, the last of each key, are replayed in any order."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._classic: dict[str, ClassicGroup] = {}
        self._modern: tuple[ModernGroupLoader[Any, Any], ...] = (
            ShareGroupLoader(now_ms),
            ConsumerGroupLoader(),
            StreamsGroupLoader(),
        )
        self._loaders = {record_type: loader for loader in self._modern for record_type in loader.REPLAYS}
        self._offsets: dict[str, GroupOffsets] = {}
        self._topic_partitions: dict[TopicPartitionKey, TopicPartitionKey] = {}
        # Many groups read the same partitions: they share one tuple for each.

    def replay(self, key: bytes, value: bytes) -> None:
        """Apply a record; skip malformed records and unknown types."""
        try:
            subject = read_key(key)
            if isinstance(subject, OffsetId):
                partition = self._topic_partitions.setdefault(subject.partition, subject.partition)
                offset = read_offset(value)
                if subject.group_id not in self._offsets:
                    self._offsets[subject.group_id] = GroupOffsets()
                self._offsets[subject.group_id].committed[partition] = offset
            elif subject is not None:
                self._classic[subject] = read_group(subject, value, self._now_ms)
            elif (loader := self._loaders.get(record_type := peek_version(key))) is not None:
                loader.replay(record_type, key, value)
        except ProtocolError as error:
            logger.warning("a record of a group is skipped: %s", error)

    def replay_pending_offset(self, producer_id: int, key: bytes, value: bytes) -> None:
        """Apply an offset of an open transaction. Requires the order of the log."""
        try:
            subject = read_key(key)
            if isinstance(subject, OffsetId):
                if subject.group_id not in self._offsets:
                    self._offsets[subject.group_id] = GroupOffsets()
                self._offsets[subject.group_id].add_pending(producer_id, {subject.partition: read_offset(value)})
        except ProtocolError as error:
            logger.warning("an offset of a transaction is skipped: %s", error)

    def groups(self) -> dict[str, Group]:
        """Return all groups after the last record."""
        classic = self._classic
        others: dict[str, Group] = {}
        for loader in self._modern:
            others.update(loader.groups)
        for group_id, committed in self._offsets.items():
            group = others.get(group_id) or classic.get(group_id)
            if group is None:
                group = classic[group_id] = ClassicGroup(group_id, self._now_ms)
            group.offsets = committed
        return {**classic, **others}
