"""Offsets where consumers of Kafka 0.8 keep them: `/consumers/<group>/offsets/<topic>/<partition>` of ZooKeeper's tree.

OffsetCommit and OffsetFetch of version 0 are a way to that tree for clients without ZooKeeper. These offsets are not
those of the group in `__consumer_offsets`: no generation fences them and they never expire.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ....protocol.errors import ErrorCode
from ...metadata.metadata_store import NodeExistsError, NoNodeError, StoreError
from ..allowance import Allowance, Maker
from .offsets import Place

if TYPE_CHECKING:
    from ...metadata.metadata_store import MetadataStore

ROOT = "/consumers"


def _is_legal(group_id: str) -> bool:
    """Whether the group id can be the name of a node: it must not lead elsewhere in the tree."""
    return bool(group_id) and group_id not in (".", "..") and "/" not in group_id and group_id.isprintable()


def _path(group_id: str, place: Place) -> str:
    return f"{ROOT}/{group_id}/offsets/{place[0]}/{place[1]}"


class ZooKeeperOffsets:
    """The offsets of all groups there. Loop-thread only."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._allowance = Allowance()
        """How many groups each client may make here."""

    async def commit(self, group_id: str, offsets: Mapping[Place, int], maker: Maker) -> ErrorCode:
        """Write offsets one after another; an error leaves the later ones as they were."""
        if not _is_legal(group_id):
            return ErrorCode.INVALID_GROUP_ID
        try:
            for place, offset in offsets.items():
                path, data = _path(group_id, place), str(offset).encode()
                try:
                    await self._store.set(path, data)
                except NoNodeError:
                    if await self._store.exists(f"{ROOT}/{group_id}") is None:
                        if not self._allowance.has_room(maker):
                            return ErrorCode.GROUP_MAX_SIZE_REACHED
                        self._allowance.made(group_id, maker)
                    await self._create(path, data)
        except StoreError:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    async def _create(self, path: str, data: bytes) -> None:
        """Create a node with its parents."""
        parts = path.split("/")
        for depth in range(2, len(parts)):
            try:
                await self._store.create("/".join(parts[:depth]))
            except NodeExistsError:
                continue
        try:
            await self._store.create(path, data)
        except NodeExistsError:
            await self._store.set(path, data)

    async def read(self, group_id: str, place: Place) -> int | None:
        """The offset of a partition, None if there is none that can be read."""
        if not _is_legal(group_id):
            return None
        try:
            data, _ = await self._store.get(_path(group_id, place))
            return int(data)
        except (StoreError, ValueError):
            return None
