"""What the records of `__consumer_offsets` stand for: the groups of both kinds, with their offsets."""

from __future__ import annotations

from operator import itemgetter

from ....protocol.errors import ProtocolError
from ....protocol.room_logger import room_logger
from ...runtime.turns import OFFSETS, Pace
from ..latest_records import LatestRecords
from .consumer.loading import LoadedConsumerGroups
from .group import Group
from .group_port import GroupPort
from .group_records import OffsetId, read_group, read_key, read_offset
from .offsets import GroupOffsets, Place

logger = room_logger("groups")


class LoadedGroups:
    """Takes the last record of each key, in any order."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._classic: dict[str, Group] = {}
        self._consumers = LoadedConsumerGroups()
        self._offsets: dict[str, GroupOffsets] = {}
        self._places: dict[Place, Place] = {}
        """Groups read the same partitions: one tuple serves them all."""

    def take(self, key: bytes, value: bytes) -> None:
        """Let the record count; one that makes no sense here is skipped."""
        try:
            subject = read_key(key)
            if isinstance(subject, OffsetId):
                place = self._places.setdefault(subject.place, subject.place)
                offset = read_offset(value)
                if subject.group_id not in self._offsets:
                    self._offsets[subject.group_id] = GroupOffsets()
                self._offsets[subject.group_id].committed[place] = offset
            elif subject is not None:
                self._classic[subject] = read_group(subject, value, self._now_ms)
            elif self._consumers.knows(key):
                self._consumers.take(key, value)
        except ProtocolError as error:
            logger.warning("a group's record is skipped: %s", error)

    def take_pending(self, producer_id: int, key: bytes, value: bytes) -> None:
        """An offset that counts once a transaction is committed. To be called in the order of the log."""
        try:
            subject = read_key(key)
            if isinstance(subject, OffsetId):
                if subject.group_id not in self._offsets:
                    self._offsets[subject.group_id] = GroupOffsets()
                self._offsets[subject.group_id].add_pending(producer_id, {subject.place: read_offset(value)})
        except ProtocolError as error:
            logger.warning("an offset of a transaction is skipped: %s", error)

    def groups(self) -> dict[str, GroupPort]:
        """All groups, once every record is taken."""
        classic, consumers = self._classic, self._consumers.groups
        for group_id, committed in self._offsets.items():
            group = consumers.get(group_id) or classic.get(group_id)
            if group is None:
                group = classic[group_id] = Group(group_id, self._now_ms)
            group.offsets = committed
        return {**classic, **consumers}


async def groups_of(records: LatestRecords, now_ms: int) -> dict[str, GroupPort]:
    """The groups that `records` stand for; the records are given up on the way. Lets others run in between."""
    loaded = LoadedGroups(now_ms)
    pace = Pace(OFFSETS)
    for key, value in records.drain():
        loaded.take(key, value)
        await pace.step()
    for producer_id, key, _, value in sorted(records.pending(), key=itemgetter(2)):
        loaded.take_pending(producer_id, key, value)
        await pace.step()
    return loaded.groups()
