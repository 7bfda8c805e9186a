"""Consumer offsets in the metadata tree, where consumers of Kafka 0.8 keep them.

/consumers/GROUP/offsets/TOPIC/PARTITION        the offset, as decimal digits

Source: ZkUtils and KafkaZkClient of Apache Kafka (getConsumerOffset, setOrCreateConsumerOffset).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...protocol.topic_partition import TopicPartitionKey
from ..runtime.loop_sharing import CountBudget
from .metadata_store import (
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SetData,
    StoreUnavailableError,
)

ROOT = "/consumers"
OFFSETS_PER_WRITE = 200
"""Offsets in one multi, which remains below `MAX_MULTI_BYTES` with the longest accepted names (`LONGEST_GROUP_ID`)."""
LONGEST_GROUP_ID = 1000
"""Bytes of a group id in UTF-8: each node of the group has it in its path."""
ATTEMPTS = 5
"""Attempts to write nodes that another broker creates or deletes at the same time."""


def is_legal_group_id(group_id: str) -> bool:
    """Whether the group id can be the name of a node: it must not lead elsewhere in the tree."""
    return (
        0 < len(group_id.encode("utf-8", "replace")) <= LONGEST_GROUP_ID
        and group_id not in (".", "..")
        and "/" not in group_id
        and group_id.isprintable()
    )


class ConsumerOffsetStore:
    """The offsets of all groups in the tree, used by the broker's coordinator and by its controller on the loop."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def read(self, group_id: str, partition: TopicPartitionKey) -> int | None:
        """Return a committed offset, None if there is none that can be read. Raises StoreError."""
        try:
            data, _ = await self._store.get(_offset_path(group_id, partition))
            return int(data)
        except (NoNodeError, ValueError):
            return None

    async def missing(self, group_id: str, partitions: Sequence[TopicPartitionKey]) -> list[TopicPartitionKey]:
        """Return the partitions for which the group has no node. Raises StoreError."""
        found = await self._store.get_many([_offset_path(group_id, partition) for partition in partitions])
        return [partition for partition, node in zip(partitions, found, strict=True) if node is None]

    async def write(self, group_id: str, offsets: Mapping[TopicPartitionKey, int]) -> None:
        """Write at most `OFFSETS_PER_WRITE` offsets together, with the nodes that are missing. Raises StoreError."""
        assert len(offsets) <= OFFSETS_PER_WRITE, "more would not fit into one multi"
        for _ in range(ATTEMPTS):
            try:
                await self._store.multi(await self._writes(group_id, offsets))
            except (NodeExistsError, NoNodeError):
                continue  # another broker created or deleted a node since it was read
            return
        raise StoreUnavailableError(_group_path(group_id))

    async def _writes(self, group_id: str, offsets: Mapping[TopicPartitionKey, int]) -> list[Operation]:
        missing = set(await self.missing(group_id, list(offsets)))
        parents = [ROOT, _group_path(group_id), _offsets_path(group_id)]
        parents += dict.fromkeys(_topic_path(group_id, topic) for topic, _ in missing)
        found = await self._store.get_many(parents) if missing else []
        writes: list[Operation] = [Create(path) for path, node in zip(parents, found, strict=False) if node is None]
        for partition, offset in offsets.items():
            path, data = _offset_path(group_id, partition), str(offset).encode()
            writes.append(Create(path, data) if partition in missing else SetData(path, data))
        return writes

    async def has_groups(self) -> bool:
        """Return whether any group has nodes here. Raises StoreError."""
        stat = await self._store.exists(ROOT)
        return stat is not None and stat.children_count > 0

    async def groups(self) -> list[str]:
        """Return the ids of all groups. Raises StoreError."""
        return await self._children(ROOT)

    async def count(self, group_id: str) -> int:
        """Return how many offsets a group has. Raises StoreError."""
        topics = await self._children(_offsets_path(group_id))
        found = await self._store.get_many([_topic_path(group_id, topic) for topic in topics])
        return sum(node[1].children_count for node in found if node is not None)

    async def last_commit_ms(self, group_id: str) -> int:
        """Return when the newest offset of a group was written, 0 for a group without offsets. Raises StoreError."""
        newest = 0
        for topic in await self._children(_offsets_path(group_id)):
            path = _topic_path(group_id, topic)
            found = await self._store.get_many([f"{path}/{partition}" for partition in await self._children(path)])
            newest = max([newest, *(node[1].modified_ms for node in found if node is not None)])
        return newest

    async def delete_group(self, group_id: str) -> bool:
        """Delete all offsets of a group, and the group; return whether there were any nodes. Raises StoreError."""
        if await self._store.exists(_group_path(group_id)) is None:
            return False
        await self._delete_offsets(group_id, await self._children(_offsets_path(group_id)))
        return True

    async def delete(self, group_id: str, partitions: Sequence[TopicPartitionKey]) -> list[TopicPartitionKey]:
        """Delete offsets of a group; return the partitions that had one. Raises StoreError."""
        missing = set(await self.missing(group_id, partitions))
        deleted = [partition for partition in partitions if partition not in missing]
        paths = [_offset_path(group_id, partition) for partition in deleted]
        paths += dict.fromkeys(_topic_path(group_id, topic) for topic, _ in deleted)
        await self._delete_paths(group_id, paths)
        return deleted

    async def delete_topics(self, topics: Iterable[str]) -> None:
        """Delete the offsets of these topics in all groups: they mean nothing to later topics of the same names.

        Raises StoreError.
        """
        names, budget = list(topics), CountBudget()
        if not names or not await self.has_groups():
            return
        for group_id in await self.groups():
            present = set(await self._children(_offsets_path(group_id)))
            gone = [name for name in names if name in present]
            if gone:
                await self._delete_offsets(group_id, gone)
            await budget.step(1 + len(present))

    async def _delete_offsets(self, group_id: str, topics: Sequence[str]) -> None:
        """Delete the offsets of some topics, and the group's own nodes if nothing is left of it."""
        paths: list[str] = []
        for topic in topics:
            path = _topic_path(group_id, topic)
            paths += [f"{path}/{partition}" for partition in await self._children(path)]
            paths.append(path)
        await self._delete_paths(group_id, paths)

    async def _delete_paths(self, group_id: str, paths: Sequence[str]) -> None:
        for first in range(0, len(paths), OFFSETS_PER_WRITE):
            await self._delete(paths[first : first + OFFSETS_PER_WRITE])
        for path in (_offsets_path(group_id), _group_path(group_id)):
            # An old consumer also keeps the owners of partitions there, for example.
            await self._delete([path])

    async def _delete(self, paths: Sequence[str]) -> None:
        """Delete nodes together; one by one if one of them no longer exists or has a child."""
        try:
            await self._store.multi([Delete(path) for path in paths])
        except (NoNodeError, NotEmptyError):
            for path in paths if len(paths) > 1 else ():
                await self._delete([path])

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._store.children(path)
        except NoNodeError:
            return []


def _group_path(group_id: str) -> str:
    return f"{ROOT}/{group_id}"


def _offsets_path(group_id: str) -> str:
    return f"{ROOT}/{group_id}/offsets"


def _topic_path(group_id: str, topic: str) -> str:
    return f"{ROOT}/{group_id}/offsets/{topic}"


def _offset_path(group_id: str, partition: TopicPartitionKey) -> str:
    return f"{ROOT}/{group_id}/offsets/{partition[0]}/{partition[1]}"
