"""Features of the cluster (KIP-584): the supported levels, the finalized level, and changes by operators.

The levels that operators have chosen are in `/feature`, as in Kafka up to 3.9. Otherwise the highest levels are in
effect. ApiVersions reports them to clients as finalized.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum
from typing import NamedTuple, Protocol

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError
from ..runtime.scheduler import BackgroundWork
from . import znodes
from .cluster_store import ClusterStore
from .metadata_store import MetadataStore, NoNodeError, StoreError, Watch
from .store_follower import StoreFollower

logger = room_logger("metadata")
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"
SINCE_SHARE_GROUPS = 1
"""The first level of `share.version` with share groups (KIP-932)."""
SINCE_DEAD_LETTERS = 2
"""The first level of `share.version` with dead-letter queues (KIP-1191)."""


class Feature(NamedTuple):
    """The supported levels of a feature, and its level unless an operator has chosen another; None: not in effect."""

    lowest: int
    highest: int
    level: int | None
    is_choosable: bool = False


# The levels of features that are complete: clients use share groups and streams groups from level 1 on, and dead-letter
# queues of share groups from `share.version` 2 on. None while the broker does not serve them.
SHARE_LEVEL: int | None = 2
STREAMS_LEVEL: int | None = 1

FEATURES: dict[str, Feature] = {
    "metadata.version": Feature(7, 33, None),
    "kraft.version": Feature(0, 1, None),
    GROUP_VERSION: Feature(0, 1, 1),
    TRANSACTION_VERSION: Feature(0, znodes.TRANSACTION_LEVELS[1], znodes.TRANSACTION_LEVELS[1], is_choosable=True),
    "eligible.leader.replicas.version": Feature(0, 1, None),
    SHARE_VERSION: Feature(0, 2, SHARE_LEVEL),
    STREAMS_VERSION: Feature(0, 1, STREAMS_LEVEL),
}
"""The supported levels are Kafka 4.4's. While ZooKeeper has the metadata, `metadata.version`, `kraft.version` and
`eligible.leader.replicas.version` are not in effect. `group.version` 1 is the consumer protocol for groups (KIP-848),
`streams.version` 1 the streams protocol (KIP-1071), `transaction.version` 2 an epoch for each transaction (KIP-890)."""


class UpgradeType(IntEnum):
    """The kind of change in an UpdateFeatures request."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A requested level."""

    level: int
    upgrade_type: int


OnFeatureChange = Callable[[], Awaitable[None]]


class Features(Protocol):
    """The levels in effect: `ClusterFeatures` of a metadata tree, or `ImageFeatures` of a KRaft metadata image."""

    @property
    def epoch(self) -> int:
        """A number that grows with each change."""

    def level(self, name: str) -> int:
        """Return the level of a feature, 0 if it is not in effect."""

    def on_change(self, callback: OnFeatureChange) -> None:
        """Call `callback` after each change of levels."""


class ClusterFeatures:
    """The levels in effect. It runs on the loop thread; `start` before clients can send ApiVersions."""

    def __init__(self, store: MetadataStore, cluster_store: ClusterStore) -> None:
        self._store = store
        self._cluster = cluster_store
        self._chosen: Mapping[str, int] | None = None
        self._version = -1
        """The version of the node; -1 while it does not exist."""
        self._follower = StoreFollower(store, "features", self._follow)
        self._background = BackgroundWork()
        self._callbacks: list[OnFeatureChange] = []

    @property
    def epoch(self) -> int:
        """The epoch of the features, which increases with each change."""
        return self._version + 1

    def level(self, name: str) -> int:
        """Return the finalized level of a feature; 0 if the feature is not in effect."""
        feature = FEATURES.get(name)
        if feature is None:
            return 0
        if not feature.is_choosable or self._chosen is None:
            return feature.level or 0
        return min(max(self._chosen.get(name, 0), feature.lowest), feature.highest)

    def on_change(self, callback: OnFeatureChange) -> None:
        """Call `callback` after each change of levels."""
        self._callbacks.append(callback)

    async def start(self) -> None:
        """Read the levels in effect, and follow changes. Raises StoreError."""
        await self._follower.start()

    async def close(self) -> None:
        await self._background.close()
        await self._follower.close()

    async def update(
        self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool, timeout_ms: float | None = None
    ) -> None:
        """Apply all updates or none.

        Raises KafkaError INVALID_UPDATE_VERSION, FEATURE_UPDATE_FAILED, and REQUEST_TIMED_OUT after `timeout_ms`; the
        update may still take effect then.
        """
        update = self._update(updates, validate_only=validate_only)
        try:
            if timeout_ms is None:
                await update
            else:
                await self._background.wait_for("an update of features", update, timeout_ms)
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The request timed out before the update was made.") from None
        except StoreError as error:
            text = "Features cannot be read or written, or were changed by another request."
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
        is_change = any(level != self.level(name) for name, level in wanted.items())
        if is_change and not validate_only:
            await self._write(wanted)

    async def _write(self, levels: Mapping[str, int]) -> None:
        # Levels that other brokers have written are kept; level 0 means that the feature is disabled.
        data = znodes.encode_features({**(self._chosen or {}), **levels})
        if self._version < 0:
            await self._store.create(znodes.FEATURE, data)
        else:
            await self._store.set(znodes.FEATURE, data, self._version)
        await self._read()

    async def _follow(self, is_new_session: bool) -> None:
        await self._read(self._follower.watch(znodes.FEATURE))
        for callback in self._callbacks:
            await callback()

    async def _read(self, watch: Watch | None = None) -> None:
        if await self._store.exists(znodes.FEATURE, watch) is None:
            self._chosen, self._version = None, -1
            return
        try:
            data, stat = await self._store.get(znodes.FEATURE)
        except NoNodeError:
            return  # the watch reports it
        try:
            self._chosen, self._version = znodes.decode_features(data), stat.version
        except znodes.UnreadableNodeError as error:
            logger.error("%s cannot be read and is ignored: %s", znodes.FEATURE, error)


def _refusal(name: str, update: FeatureUpdate, present: int, brokers: list[tuple[int, int] | None]) -> str | None:
    """Return the reason why a feature cannot change to a level, or None. Follows Kafka's FeatureControlManager."""
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
