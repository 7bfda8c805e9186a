"""Settings that any broker of the cluster has changed, heard of through the notices in the metadata tree.

Kafka's ZkConfigManager. Whoever changes settings writes them and, after that, a notice that names what they belong to.
A notice says nothing of the settings: they are read when it is heard of, so that only the newest ever count, and a
change of this broker's own that comes back changes nothing. All notices that are there are heeded at the start: the
settings were read before, and some may be newer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from ...protocol.config_resources import ConfigResourceType
from ...protocol.room_logger import room_logger
from ..metadata import znodes
from ..metadata.config_store import ConfigStore
from ..metadata.metadata_store import MetadataStore, SessionState, StoreError, WatchEvent
from .dynamic_config import DynamicConfig, legal_settings
from .keys.catalogue import BROKER_KEYS, TOPIC_KEYS
from .named_configs import NAMED_KINDS

logger = room_logger("config")

RETRY_S = 1.0
"""After which notices are looked for again when the store could not be read."""

Heed = Callable[[str], Awaitable[None]]
"""Reads anew what the entity of this name has, and applies it."""


class ConfigNotices:
    """Loop-thread only."""

    def __init__(self, store: MetadataStore, config_store: ConfigStore, dynamic_config: DynamicConfig) -> None:
        """`watch` other kinds of entities than topics, brokers, groups and client metrics subscriptions."""
        self._store = store
        self._config_store = config_store
        self._dynamic_config = dynamic_config
        self._broker_id = -1
        self._heeds: dict[str, list[Heed]] = {"topics": [self._topic], "brokers": [self._broker]}
        for resource_type, kind in NAMED_KINDS.items():
            self._heeds[kind.entity_type] = [partial(self._named, resource_type)]
        self._newest = -1
        self._news = asyncio.Event()
        self._session = 0
        self._listening: asyncio.Task[None] | None = None

    def watch(self, entity_type: str, heed: Heed) -> None:
        """Have `heed` called for each entity of a type that has other settings; its name may be a path."""
        self._heeds.setdefault(entity_type, []).append(heed)

    def start(self, broker_id: int) -> None:
        """Listen from now on, for what concerns this broker."""
        self._broker_id = broker_id
        self._store.on_state_change(self._session_changed)
        self._news.set()
        self._listening = asyncio.ensure_future(self._listen())

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    def _session_changed(self, state: SessionState) -> None:
        # The watch has ended with the session that set it.
        if state is SessionState.CONNECTED and self._store.session_id != self._session:
            self._news.set()

    def _told(self, event: WatchEvent) -> None:
        self._news.set()

    async def _listen(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._heed_news()
            except StoreError as error:
                logger.warning("changes of settings cannot be read, another attempt follows: %r", error)
                await asyncio.sleep(RETRY_S)
                self._news.set()

    async def _heed_news(self) -> None:
        self._session = self._store.session_id
        names = await self._store.children(znodes.CONFIG_CHANGES, self._told)
        new = [name for name in names if _number(name) > self._newest]
        for entity_type, name in dict.fromkeys(await self._entities(new)):
            for heed in self._heeds.get(entity_type, ()):
                try:
                    async with self._dynamic_config.changing:
                        await heed(name)
                except StoreError:
                    raise
                except Exception:
                    logger.exception("the settings of %s/%s cannot be applied", entity_type, name)
        self._newest = max([self._newest, *map(_number, new)])

    async def _entities(self, names: Sequence[str]) -> list[tuple[str, str]]:
        """What the notices name; those that are purged already are long heeded."""
        entities = []
        for node in await self._store.get_many([f"{znodes.CONFIG_CHANGES}/{name}" for name in names]):
            if node is not None:
                try:
                    entities.append(znodes.decode_config_change(node[0]))
                except ValueError as error:
                    logger.error("a notice of changed settings says nothing: %s", error)
        return entities

    async def _topic(self, name: str) -> None:
        settings = legal_settings(await self._config_store.topic_config(name), TOPIC_KEYS)
        self._dynamic_config.topic_config_changed(name, settings)

    async def _broker(self, name: str) -> None:
        if name not in (znodes.DEFAULT_ENTITY, str(self._broker_id)):
            return
        broker_id = None if name == znodes.DEFAULT_ENTITY else self._broker_id
        settings = legal_settings(await self._config_store.broker_config(broker_id), BROKER_KEYS)
        self._dynamic_config.broker_config_changed(settings, per_broker=broker_id is not None)

    async def _named(self, resource_type: ConfigResourceType, node: str) -> None:
        kind = NAMED_KINDS[resource_type]
        name = znodes.decode_name(node)
        settings = legal_settings(await self._config_store.named_config(kind.entity_type, name), kind.keys)
        self._dynamic_config.named_config_changed(resource_type, name, settings)


def _number(name: str) -> int:
    digits = name.rpartition("_")[2]
    return int(digits) if digits.isdecimal() else -1
