"""Features of the cluster (KIP-584): which levels there can be, which one is in force, and how an operator changes it.

The levels that somebody has chosen are in `/feature`, as Kafka up to 3.9 has them there. Where nobody has chosen, the
highest are in force. What Kafka calls finalized: clients are told by ApiVersions.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.room_logger import room_logger
from . import znodes
from .cluster_store import ClusterStore
from .metadata_store import MetadataStore, NoNodeError, StoreError, Watch
from .store_follower import StoreFollower

logger = room_logger("metadata")
TRANSACTION_VERSION = "transaction.version"


class Feature(NamedTuple):
    """Which levels a feature can have here, and which it has unless another is chosen; None: never one."""

    lowest: int
    highest: int
    level: int | None
    is_choosable: bool = False


FEATURES: dict[str, Feature] = {
    "metadata.version": Feature(7, 27, None),
    "group.version": Feature(0, 1, 1),
    TRANSACTION_VERSION: Feature(0, znodes.TRANSACTION_LEVELS[1], znodes.TRANSACTION_LEVELS[1], is_choosable=True),
}
"""`metadata.version` are those of Kafka 4.1; where ZooKeeper has the metadata, as here, no level of it is finalized.
`group.version` 1 is the consumer protocol for groups (KIP-848), `transaction.version` 2 an epoch for each transaction
(KIP-890)."""


class UpgradeType(IntEnum):
    """What an operator means to do, as UpdateFeatures has it."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A wish for another level."""

    level: int
    upgrade_type: int


class ClusterFeatures:
    """The levels in force. Loop-thread only; `start` before clients are told of them."""

    def __init__(self, store: MetadataStore, cluster_store: ClusterStore) -> None:
        self._store = store
        self._cluster = cluster_store
        self._chosen: Mapping[str, int] | None = None
        self._version = -1
        """Of the node, -1 while there is none."""
        self._follower = StoreFollower(store, "features", self._follow)

    @property
    def epoch(self) -> int:
        """Grows with each change."""
        return self._version + 1

    def level(self, name: str) -> int:
        """In force; 0 for none."""
        feature = FEATURES[name]
        if not feature.is_choosable or self._chosen is None:
            return feature.level or 0
        return min(max(self._chosen.get(name, 0), feature.lowest), feature.highest)

    async def start(self) -> None:
        """Know what is in force, and hear of changes from now on. Raises StoreError."""
        await self._follower.start()

    async def close(self) -> None:
        await self._follower.close()

    async def update(self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool) -> None:
        """All of them or none. Raises KafkaError INVALID_UPDATE_VERSION, FEATURE_UPDATE_FAILED."""
        try:
            await self._update(updates, validate_only=validate_only)
        except StoreError as error:
            text = "Features cannot be read or written, or somebody else has changed them."
            raise KafkaError(ErrorCode.FEATURE_UPDATE_FAILED, text) from error

    async def _update(self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool) -> None:
        await self._read()
        brokers = await self._cluster.brokers()
        for name, update in updates.items():
            present = self.level(name) if name in FEATURES else 0
            reason = _refusal(name, update, present, [one.transaction_levels for one in brokers.values()])
            if reason is not None:
                text = f"Invalid update version {update.level} for feature {name}. {reason}"
                raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, text)
        wanted = {name: self.level(name) for name, feature in FEATURES.items() if feature.is_choosable}
        wanted |= {name: update.level for name, update in updates.items() if name in wanted}
        is_news = any(level != self.level(name) for name, level in wanted.items())
        if is_news and not validate_only:
            await self._write(wanted)

    async def _write(self, levels: Mapping[str, int]) -> None:
        # What other brokers have put there stays; level 0 is that there is none.
        data = znodes.encode_features({**(self._chosen or {}), **levels})
        if self._version < 0:
            await self._store.create(znodes.FEATURE, data)
        else:
            await self._store.set(znodes.FEATURE, data, self._version)
        await self._read()

    async def _follow(self, is_new_session: bool) -> None:
        await self._read(self._follower.watch(znodes.FEATURE))

    async def _read(self, watch: Watch | None = None) -> None:
        if await self._store.exists(znodes.FEATURE, watch) is None:
            self._chosen, self._version = None, -1
            return
        try:
            data, stat = await self._store.get(znodes.FEATURE)
        except NoNodeError:
            return  # told of by the watch
        try:
            self._chosen, self._version = znodes.decode_features(data), stat.version
        except znodes.UnreadableNodeError as error:
            logger.error("%s says nothing: %s", znodes.FEATURE, error)


def _refusal(name: str, update: FeatureUpdate, present: int, brokers: list[tuple[int, int] | None]) -> str | None:
    """Why a feature may not go to that level; None if it may. Kafka's FeatureControlManager."""
    feature = FEATURES.get(name)
    if update.upgrade_type not in tuple(UpgradeType):
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    if feature is None:
        return "The local controller does not support this feature."
    if not feature.lowest <= update.level <= feature.highest and update.level:
        return f"The local controller only supports versions {feature.lowest}-{feature.highest}"
    if update.level < present and update.upgrade_type == UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
            " downgrade."
        )
    if update.level > present and update.upgrade_type != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    if update.level != present and not feature.is_choosable:
        return "The level of this feature is not to be chosen."
    lacking = any(levels is None or not levels[0] <= update.level <= levels[1] for levels in brokers)
    return "A broker of the cluster does not support this feature." if update.level and lacking else None
