"""Offsets of consumers of Kafka 0.8, which OffsetCommit and OffsetFetch of version 0 reach.

They are stored in the metadata tree (see `ConsumerOffsetStore`), apart from the offsets in `__consumer_offsets`,
and are not fenced by a generation. They are deleted with their topic, with their group (DeleteGroups) and by
OffsetDelete. As each node of the tree is in the memory of the process that serves it, their number is bounded; groups
that have committed nothing for `offsets.retention.minutes` are deleted when the bound is reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ....common.room_logger import room_logger
from ....protocol.errors import ErrorCode
from ....protocol.topic_partition import TopicPartitionKey
from ...metadata.consumer_offset_store import OFFSETS_PER_WRITE, ConsumerOffsetStore, is_legal_group_id
from ...metadata.metadata_store import StoreError
from ...runtime.loop_sharing import CountBudget
from ..creation_limiter import ClientIdentity, CreationLimiter

if TYPE_CHECKING:
    from ...config.settings import Settings
    from ...metadata.metadata_store import MetadataStore

logger = room_logger("groups")

COUNTED_OFFSETS_PER_TURN = 5000
"""Offsets in the metadata tree that are counted per turn of the loop; each group counts as one more."""

MAX_OFFSETS, MAX_OFFSETS_PER_HOST = 100_000, 40_000
"""Offsets of all groups in the tree, and those created by one host since this broker started. Each takes about a
kilobyte of memory."""
SECONDS_BETWEEN_COUNTS = 60.0
"""All offsets are counted again no more often than this: other brokers create and delete some, too."""
MINUTE_MS = 60_000


class ZooKeeperOffsets:
    """The offsets of all groups in the tree, with their limits. Used on the loop only."""

    def __init__(self, store: MetadataStore, config: Settings, now_ms: Callable[[], int]) -> None:
        self._store = ConsumerOffsetStore(store)
        self._config = config
        self._now_ms = now_ms
        self._creation_limiter = CreationLimiter(MAX_OFFSETS_PER_HOST)
        """Limits the number of offsets that each client creates."""
        self._creating = asyncio.Lock()
        """Held by commits of new offsets, so that none of them is created while all are counted."""
        self._count = MAX_OFFSETS
        """Offsets in the tree; at the bound until they are counted for the first time."""
        self._next_count_s = 0.0
        """Loop time."""

    async def commit(
        self, group_id: str, offsets: Mapping[TopicPartitionKey, int], client: ClientIdentity
    ) -> ErrorCode:
        """Write offsets in several portions; an error leaves the later portions as they were."""
        if not is_legal_group_id(group_id):
            return ErrorCode.INVALID_GROUP_ID
        partitions, budget = list(offsets), CountBudget()
        try:
            for first in range(0, len(partitions), OFFSETS_PER_WRITE):
                some = {partition: offsets[partition] for partition in partitions[first : first + OFFSETS_PER_WRITE]}
                if await self._store.missing(group_id, list(some)):
                    async with self._creating:
                        if not await self._create(group_id, some, client):
                            return ErrorCode.GROUP_MAX_SIZE_REACHED
                else:
                    await self._store.write(group_id, some)
                await budget.step(len(some))
        except StoreError:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    async def read(self, group_id: str, partition: TopicPartitionKey) -> int | None:
        """Return the offset of a partition, None if there is none that can be read."""
        if not is_legal_group_id(group_id):
            return None
        try:
            return await self._store.read(group_id, partition)
        except StoreError:
            return None

    async def delete(self, group_ids: Sequence[str]) -> set[str]:
        """Delete the offsets of these groups; return the groups that had any. Raises StoreError."""
        legal = [group_id for group_id in group_ids if is_legal_group_id(group_id)]
        if not legal or not await self._store.has_groups():
            return set()
        budget = CountBudget()
        deleted = set()
        for group_id in legal:
            count = await self._store.count(group_id)
            if await self._store.delete_group(group_id):
                deleted.add(group_id)
                self._count -= count
            await budget.step(1 + count)
        return deleted

    async def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartitionKey]) -> list[TopicPartitionKey]:
        """Delete the offsets of these partitions; return the partitions that had one. Raises StoreError."""
        if not partitions or not is_legal_group_id(group_id) or not await self._store.has_groups():
            return []
        budget = CountBudget()
        deleted: list[TopicPartitionKey] = []
        for first in range(0, len(partitions), OFFSETS_PER_WRITE):
            deleted += await self._store.delete(group_id, partitions[first : first + OFFSETS_PER_WRITE])
            await budget.step(OFFSETS_PER_WRITE)
        self._count -= len(deleted)
        return deleted

    async def _create(self, group_id: str, offsets: Mapping[TopicPartitionKey, int], client: ClientIdentity) -> bool:
        """Write offsets of which some are new; return False, and write nothing, if that would be too many."""
        new = await self._store.missing(group_id, list(offsets))
        if not self._creation_limiter.can_create(client, len(new)) or not await self._make_room(len(new)):
            return False
        await self._store.write(group_id, offsets)
        self._count += len(new)
        for topic, partition in new:
            self._creation_limiter.record_creation(f"{group_id}/{topic}/{partition}", client)
        return True

    async def _make_room(self, new: int) -> bool:
        """Return whether there is room for `new` offsets; count again and delete expired groups if there is none."""
        now_s = asyncio.get_running_loop().time()
        if self._count + new > MAX_OFFSETS and now_s >= self._next_count_s:
            self._next_count_s = now_s + SECONDS_BETWEEN_COUNTS
            self._count = 0
            groups = await self._store.groups()
            budget = CountBudget(COUNTED_OFFSETS_PER_TURN)
            for group_id in groups:
                count = await self._store.count(group_id)
                self._count += count
                await budget.step(1 + count)
            if self._count + new > MAX_OFFSETS:
                await self._delete_expired(groups, new)
        return self._count + new <= MAX_OFFSETS

    async def _delete_expired(self, groups: Sequence[str], new: int) -> None:
        """Delete groups without a recent commit until there is room for `new` offsets."""
        newest_ms = self._now_ms() - self._config.offsets_retention_minutes * MINUTE_MS
        budget = CountBudget()
        for group_id in groups:
            if self._count + new <= MAX_OFFSETS:
                return
            if await self._store.last_commit_ms(group_id) < newest_ms:
                logger.info("group %s has expired: its offsets in the metadata tree are deleted", group_id)
                await self.delete([group_id])
            await budget.step()
