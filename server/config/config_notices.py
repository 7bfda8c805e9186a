"""Settings that any broker of the cluster has changed, heard of through the notices in the metadata tree.

Kafka's ZkConfigManager. Whoever changes settings writes them and, after that, a notice that names what they belong to.
A notice says nothing of the settings: they are read when it is heard of, so that only the newest ever count, and a
change of this broker's own that comes back changes nothing. All notices that are there are heeded at the start: the
settings were read before, and some may be newer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial

from ...protocol.config_resources import ConfigResourceType
from ...protocol.room_logger import room_logger
from ..metadata import znodes
from ..metadata.config_store import ConfigStore, node_name
from ..metadata.metadata_store import MetadataStore, StoreError
from ..metadata.store_follower import StoreFollower
from .dynamic_config import DynamicConfig, legal_settings
from .keys.catalogue import TOPIC_KEYS
from .named_configs import NAMED_KINDS

logger = room_logger("config")

Heed = Callable[[str], Awaitable[None]]
"""Reads anew what the entity of this name has, and applies it."""


class ConfigNotices:
    """Loop-thread only."""

    def __init__(self, store: MetadataStore, config_store: ConfigStore, dynamic_config: DynamicConfig) -> None:
        """`watch` other kinds of entities than topics, brokers, groups and client metrics subscriptions."""
        self._config_store = config_store
        self._dynamic_config = dynamic_config
        self._broker_id = -1
        self._heeds: dict[str, list[Heed]] = {"topics": [self._topic], "brokers": [self._broker]}
        for resource_type, kind in NAMED_KINDS.items():
            self._heeds[kind.entity_type] = [partial(self._named, resource_type)]
        self._newest = ""
        self._is_later_session = False
        self._follower = StoreFollower(store, "changes of settings", self._heed_news)

    def watch(self, entity_type: str, heed: Heed) -> None:
        """Have `heed` called for each entity of a type that has other settings; its name may be a path."""
        self._heeds.setdefault(entity_type, []).append(heed)

    async def start(self, broker_id: int) -> None:
        """Heed what concerns this broker, from now on. Raises StoreError."""
        self._broker_id = broker_id
        await self._follower.start()

    async def close(self) -> None:
        await self._follower.close()

    async def _heed_news(self, is_new_session: bool) -> None:
        new = await self._config_store.notices.after(self._newest, self._follower.watch(znodes.CONFIG_CHANGES))
        entities = _entities(new.values())
        if is_new_session and self._is_later_session:
            # Notices are gone after a while, and nobody knows how long there was no session.
            entities = iter(await self._all_entities())
        for entity_type, name in dict.fromkeys(entities):
            for heed in self._heeds.get(entity_type, ()):
                try:
                    async with self._dynamic_config.changing:
                        await heed(name)
                except StoreError:
                    raise
                except Exception:
                    logger.exception("the settings of %s/%s cannot be applied", entity_type, name)
        self._newest = max([self._newest, *new])
        self._is_later_session = True

    async def _all_entities(self) -> list[tuple[str, str]]:
        """Those that have settings in the store, or have them here."""
        found = [(one, name) for one in self._heeds for name in await self._config_store.entity_names(one)]
        for resource_type, kind in NAMED_KINDS.items():
            names = self._dynamic_config.configured(resource_type)
            found += [(kind.entity_type, node_name(name)) for name in names]
        return found

    async def _topic(self, name: str) -> None:
        settings = legal_settings(await self._config_store.topic_config(name), TOPIC_KEYS)
        self._dynamic_config.topic_config_changed(name, settings)

    async def _broker(self, name: str) -> None:
        if name in (znodes.DEFAULT_ENTITY, str(self._broker_id)):
            await self._dynamic_config.load_broker(self._config_store, self._broker_id)

    async def _named(self, resource_type: ConfigResourceType, node: str) -> None:
        kind = NAMED_KINDS[resource_type]
        name = znodes.decode_name(node)
        settings = legal_settings(await self._config_store.named_config(kind.entity_type, name), kind.keys)
        self._dynamic_config.named_config_changed(resource_type, name, settings)


def _entities(notices: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """What notices name."""
    for data in notices:
        try:
            yield znodes.decode_config_change(data)
        except ValueError as error:
            logger.error("a notice of changed settings says nothing: %s", error)
