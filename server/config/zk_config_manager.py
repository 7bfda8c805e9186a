"""Kafka's ZkConfigManager: applies settings that any broker of the cluster has changed.

A broker that changes settings writes them together with a notification that names their entity. The notification does
not contain the settings: each broker reads the present ones, so that only the newest apply, and a notification of its
own change has no effect. All present notifications are processed at the start, since the settings may have changed
after they were loaded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial

from ...common.room_logger import room_logger
from ...protocol.config_resources import ConfigResourceType
from ..metadata import znodes
from ..metadata.config_store import ConfigStore, node_name
from ..metadata.metadata_store import MetadataStore, StoreError
from ..metadata.store_follower import StoreFollower
from .dynamic_config import DynamicConfig, legal_settings
from .keys.catalogue import TOPIC_KEYS
from .named_configs import NAMED_KINDS

logger = room_logger("config")

ConfigHandler = Callable[[str], Awaitable[None]]
"""Kafka's ConfigHandler: reads the settings of the entity of this name and applies them."""


class ZkConfigManager:
    """Kafka's ZkConfigManager. `ClusterMember` owns it; it runs on the loop thread."""

    def __init__(self, store: MetadataStore, config_store: ConfigStore, dynamic_config: DynamicConfig) -> None:
        """Handle topics, brokers, groups and client metrics subscriptions; `add_handler` adds other entities."""
        self._config_store = config_store
        self._dynamic_config = dynamic_config
        self._broker_id = -1
        self._handlers: dict[str, list[ConfigHandler]] = {"topics": [self._topic], "brokers": [self._broker]}
        for resource_type, kind in NAMED_KINDS.items():
            self._handlers[kind.entity_type] = [partial(self._named, resource_type)]
        self._newest = ""
        self._is_later_session = False
        self._follower = StoreFollower(store, "notifications of changed settings", self._process_notifications)

    def add_handler(self, entity_type: str, handler: ConfigHandler) -> None:
        """Call `handler` for each entity of a type with changed settings; its name may be a path."""
        self._handlers.setdefault(entity_type, []).append(handler)

    async def start(self, broker_id: int) -> None:
        """Process the present notifications and later ones. Raises StoreError."""
        self._broker_id = broker_id
        await self._follower.start()

    async def close(self) -> None:
        await self._follower.close()

    async def _process_notifications(self, is_new_session: bool) -> None:
        new = await self._config_store.notifications.after(self._newest, self._follower.watch(znodes.CONFIG_CHANGES))
        entities = _entities(new.values())
        if is_new_session and self._is_later_session:
            # Notifications expire, and the time without a session may have been longer than their lifetime.
            entities = iter(await self._all_entities())
        for entity_type, name in dict.fromkeys(entities):
            for handler in self._handlers.get(entity_type, ()):
                try:
                    async with self._dynamic_config.changing:
                        await handler(name)
                except StoreError:
                    raise
                except Exception:
                    logger.exception("the settings of %s/%s cannot be applied", entity_type, name)
        self._newest = max([self._newest, *new])
        self._is_later_session = True

    async def _all_entities(self) -> list[tuple[str, str]]:
        """Return the entities with settings in the store or on this broker."""
        found = [(one, name) for one in self._handlers for name in await self._config_store.entity_names(one)]
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
    """Yield the entities that notifications name."""
    for data in notices:
        try:
            yield znodes.decode_config_change(data)
        except ValueError as error:
            logger.error("a notification of changed settings cannot be read: %s", error)
