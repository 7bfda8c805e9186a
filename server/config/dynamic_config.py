"""Settings that change while the broker runs: of topics, groups and the like, this broker, all brokers (KIP-226)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Protocol

from ...protocol.config_resources import ConfigResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.room_logger import room_logger
from ...storage.log_config import NEVER, LogConfig
from .broker_config import BrokerConfig
from .checks import WAYS_IN, is_zero
from .keys.catalogue import BROKER_KEYS, DYNAMIC_ONLY_KEYS, TOPIC_KEYS, TOPIC_SYNONYMS, synonyms
from .keys.definition import ConfigKey, UpdateMode
from .keys.validators import ConfigError
from .message_format import ignored_format
from .named_configs import NAMED_KINDS

logger = room_logger("config")

_LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]*\.(?P<key>.*)")

# Key material is only ever changed for one listener, so that a broker never loses its way to the others.
_LISTENER_KEYS_ONLY = frozenset(
    name for name in BROKER_KEYS if name.startswith(("ssl.keystore.", "ssl.key.", "ssl.truststore."))
)
_CLUSTER_WIDE_OF_LISTENERS = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})
"""What may be said of a listener for all brokers together (Kafka's ClusterLevelListenerConfigs)."""
_THREADS = ("num.io.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir", "background.threads")
_BROKER_KEYS_OF_LOGS = frozenset(name for key in TOPIC_SYNONYMS.values() for name in synonyms(key)) | {
    "producer.id.expiration.ms"
}
_MESSAGE_FORMAT = "message.format.version"
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


class StoredConfigs(Protocol):
    """Where changed settings are kept (ConfigStore)."""

    async def broker_config(self, broker_id: int | None) -> dict[str, str]: ...

    async def readable_broker_config(self, broker_id: int | None) -> dict[str, str]: ...

    async def topic_configs(self) -> dict[str, dict[str, str]]: ...

    async def named_configs(self, entity_type: str) -> dict[str, dict[str, str]]: ...


def topic_log_config(config: BrokerConfig, settings: Mapping[str, str] = _NO_SETTINGS) -> LogConfig:
    """How the logs of a topic with these settings of its own behave on a broker.

    The topic's settings win over the broker's, and there a value for this broker over one for all brokers over the
    file over the built-in default; in each layer milliseconds win over minutes over hours. As in Kafka 3, a format of
    messages counts only below version 3.0 of `inter.broker.protocol.version`. Raises KafkaError INVALID_CONFIG.
    """
    properties = config.topic_defaults()
    for name, raw in settings.items():
        properties[name] = _canonical(name, raw)
    # The key that `before` and `after` replaced still speaks for each of them that is left at "no limit".
    limit = properties["message.timestamp.difference.max.ms"]
    for name in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"):
        if properties[name] == str(NEVER):
            properties[name] = limit
    if not config.heeds_message_format:
        del properties[_MESSAGE_FORMAT]
    return LogConfig.from_props(properties, LogConfig(producer_id_expiration_ms=config.producer_id_expiration_ms))


def _canonical(name: str, raw: str) -> str:
    """The value as it is written when nothing about it is optional: without blanks, signs, capitals."""
    key = TOPIC_KEYS.get(name)
    if key is None:
        return raw
    try:
        return key.format(key.parse(raw)) or ""
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def broker_key(name: str) -> ConfigKey | None:
    """Definition of a key of a broker, also of one with a listener's prefix; None for an unknown key."""
    match = _LISTENER_PREFIX.fullmatch(name)
    base = match["key"] if match else name
    return BROKER_KEYS.get(base) or DYNAMIC_ONLY_KEYS.get(base)


class DynamicConfig:
    """Holds what is changed and applies it at once. Loop-thread only.

    Settings of the broker change in its `BrokerConfig`, where all read them; of topics those who asked are told.
    Nothing is stored here for longer than the process lives: the handlers write to the store first, under `changing`,
    then call the `..._changed` methods, as does whoever hears of changes that other brokers made.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.changing = asyncio.Lock()
        self._topics: dict[str, Mapping[str, str]] = {}
        self._named: dict[ConfigResourceType, dict[str, Mapping[str, str]]] = {kind: {} for kind in NAMED_KINDS}
        self.named_changes = 0
        """How often settings of a resource of the `NAMED_KINDS` have become others."""
        self._default_log_config = topic_log_config(config)
        self._topic_callbacks: list[Callable[[str | None], None]] = []
        self._broker_callbacks: list[Callable[[], None]] = []

    async def load(self, store: StoredConfigs, broker_id: int) -> None:
        """Take over everything that the store holds; a value that is no longer legal is logged and left out."""
        try:
            await self._load_broker(store.readable_broker_config, broker_id)
        except ConfigError as error:
            logger.error("The stored dynamic configuration of broker %d cannot be applied: %s", broker_id, error)
        for topic, settings in (await store.topic_configs()).items():
            self.topic_config_changed(topic, legal_settings(settings, TOPIC_KEYS))
        for resource_type, kind in NAMED_KINDS.items():
            for name, settings in (await store.named_configs(kind.entity_type)).items():
                self.named_config_changed(resource_type, name, legal_settings(settings, kind.keys))

    # Brokers

    async def load_broker(self, store: StoredConfigs, broker_id: int) -> None:
        """Take over what the store holds for this broker and for all: together, as each is checked against the other.

        Raises ConfigError, UnreadableNodeError: all stays as it is then.
        """
        await self._load_broker(store.broker_config, broker_id)

    async def _load_broker(
        self, config_of: Callable[[int | None], Awaitable[Mapping[str, str]]], broker_id: int
    ) -> None:
        cluster = legal_settings(await config_of(None), BROKER_KEYS)
        self._apply(cluster, legal_settings(await config_of(broker_id), BROKER_KEYS))

    def check_broker_config(self, settings: Mapping[str, str], *, per_broker: bool) -> None:
        """Raise KafkaError unless these may be all dynamic settings of this broker, or else of all brokers."""
        _refuse(
            (name for name in settings if name in BROKER_KEYS and _update_mode(name) is UpdateMode.READ_ONLY),
            "Cannot update these configs dynamically",
        )
        _refuse(
            (name for name in settings if name in _LISTENER_KEYS_ONLY),
            "These security configs can be dynamically updated only per-listener using the listener prefix",
        )
        if not per_broker:
            _refuse(
                (name for name in settings if _update_mode(name) is UpdateMode.PER_BROKER),
                "Cannot update these configs at default cluster level, broker id must be specified",
            )
        cluster = self.config.cluster_overrides if per_broker else settings
        broker = settings if per_broker else self.config.broker_overrides
        try:
            for name, value in settings.items():
                key = broker_key(name)
                if key is not None:
                    key.parse(value)
            self.config.check_overrides(cluster, broker)
            before = self.config.effective_properties(self.config.cluster_overrides, self.config.broker_overrides)
            after = self.config.effective_properties(cluster, broker)
            self._check_threads(before, after)
            check_ways_in([listener.name for listener in self.config.listeners], before, after)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None

    def _check_threads(self, before: Mapping[str, str], properties: Mapping[str, str]) -> None:
        check_cleaner_threads(self.config, properties)
        for name in _THREADS:
            default = str(BROKER_KEYS[name].default)
            check_threads(name, int(before.get(name, default)), int(properties.get(name, default)))

    def on_broker_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` when settings of the broker may be others."""
        self._broker_callbacks.append(callback)

    def broker_config_changed(self, settings: Mapping[str, str], *, per_broker: bool) -> None:
        """These are all dynamic settings of this broker from now on, or else of all brokers. Raises ConfigError."""
        if per_broker:
            self._apply(self.config.cluster_overrides, settings)
        else:
            self._apply(settings, self.config.broker_overrides)

    def _apply(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> None:
        changed = self.config.apply_overrides(cluster, broker)
        if changed & _BROKER_KEYS_OF_LOGS:
            self._default_log_config = topic_log_config(self.config)
            self._tell_topics(None)
        for callback in self._broker_callbacks:
            callback()

    # Groups and client metrics subscriptions

    def configured(self, resource_type: ConfigResourceType) -> Iterable[str]:
        """The names of all resources of one of the `NAMED_KINDS` that have settings of their own."""
        return self._named[resource_type].keys()

    def named_config(self, resource_type: ConfigResourceType, name: str) -> Mapping[str, str]:
        """The own settings of such a resource as they were given; empty if it has none."""
        return self._named[resource_type].get(name, _NO_SETTINGS)

    def named_config_changed(self, resource_type: ConfigResourceType, name: str, settings: Mapping[str, str]) -> None:
        """Such a resource has these settings of its own from now on."""
        self.named_changes += 1
        self._named[resource_type].pop(name, None)
        if settings:
            self._named[resource_type][name] = MappingProxyType(dict(settings))

    def group_value(self, group: str, name: str) -> int | None:
        """A number that a group has as a setting of its own; None if it has none."""
        raw = self.named_config(ConfigResourceType.GROUP, group).get(name)
        return None if raw is None else int(raw)

    # Topics

    def on_topic_change(self, callback: Callable[[str | None], None]) -> None:
        """Call `callback` when the LogConfig of a topic is another; with None when it may be of every topic."""
        self._topic_callbacks.append(callback)

    def topic_config(self, topic: str) -> Mapping[str, str]:
        """A topic's own settings as they were given; empty if it has none."""
        return self._topics.get(topic, _NO_SETTINGS)

    def topic_log_config(self, topic: str) -> LogConfig:
        """How the logs of a topic behave. Topics without settings of their own share one object."""
        settings = self._topics.get(topic)
        return topic_log_config(self.config, settings) if settings else self._default_log_config

    def check_topic_config(self, config: Mapping[str, str]) -> None:
        """Raises KafkaError INVALID_CONFIG unless a topic may have these settings."""
        for name in config:
            if name not in TOPIC_KEYS:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
        log_config = topic_log_config(self.config, config)
        if log_config.min_compaction_lag_ms > log_config.max_compaction_lag_ms:
            reason = (
                f"conflict topic config setting min.compaction.lag.ms ({log_config.min_compaction_lag_ms})"
                f" > max.compaction.lag.ms ({log_config.max_compaction_lag_ms})"
            )
            raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
        if log_config.remote_storage_enable:
            reason = "Tiered Storage functionality is disabled in the broker. "
            raise KafkaError(ErrorCode.INVALID_CONFIG, reason + "Topic cannot be configured with remote log storage.")

    def topic_config_changed(self, topic: str, config: Mapping[str, str] | None) -> None:
        """A topic has these settings of its own from now on; None: the topic is gone."""
        before = self._topics.pop(topic, _NO_SETTINGS)
        if config:
            self._topics[topic] = MappingProxyType(dict(config))
        if config is not None and dict(before) != dict(config):
            if _MESSAGE_FORMAT in config and not self.config.heeds_message_format:
                logger.warning("%s", ignored_format(_MESSAGE_FORMAT, config[_MESSAGE_FORMAT], f" of topic {topic}"))
            self._tell_topics(topic)

    def _tell_topics(self, topic: str | None) -> None:
        for callback in self._topic_callbacks:
            callback(topic)


def check_cleaner_threads(config: BrokerConfig, properties: Mapping[str, str]) -> None:
    """The number of cleaner threads is at most doubled or halved at a time (Kafka: LogCleaner). Raises ConfigError."""
    name = "log.cleaner.threads"
    now, wanted = config.log_cleaner_threads, int(properties.get(name, BROKER_KEYS[name].default))  # type: ignore[arg-type]
    if wanted == now:
        return
    if wanted < 1:
        raise ConfigError(name, wanted, "Log cleaner threads should be at least 1")
    if wanted < now // 2:
        reason = f"Log cleaner threads cannot be reduced to less than half the current value {now}"
        raise ConfigError(name, wanted, reason)
    if wanted > now * 2:
        reason = f"Log cleaner threads cannot be increased to more than double the current value {now}"
        raise ConfigError(name, wanted, reason)


def check_threads(name: str, now: int, wanted: int) -> None:
    """Kafka's pools of threads, too, grow and shrink by a factor of two at most. Raises ConfigError."""
    reason = f"Dynamic thread count update validation failed for {name}={wanted}, value should"
    if wanted < 1:
        raise ConfigError(name, wanted, f"{reason} be at least 1")
    if wanted < now // 2:
        raise ConfigError(name, wanted, f"{reason} be at least half the current value {now}")
    if wanted > now * 2:
        raise ConfigError(name, wanted, f"{reason} not be greater than double the current value {now}")


def check_ways_in(listeners: Iterable[str], before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """No limit becomes 0, which lets nobody in who could set it back (Kafka: ListenerConnectionQuota).

    One that is 0 already, in the file, keeps nobody from changing something else. Raises KafkaError INVALID_REQUEST.
    """
    for key in WAYS_IN:
        for name in (key, *(f"listener.name.{listener.lower()}.{key}" for listener in listeners)):
            if is_zero(key, after.get(name)) and not is_zero(key, before.get(name)):
                reason = f"Invalid {key} 0: it would keep out whoever is to set it back"
                raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _update_mode(name: str) -> UpdateMode | None:
    """When a key may change: most of a listener's own for one broker; None for a key that nobody knows."""
    match = _LISTENER_PREFIX.fullmatch(name)
    if match:
        return UpdateMode.CLUSTER_WIDE if match["key"] in _CLUSTER_WIDE_OF_LISTENERS else UpdateMode.PER_BROKER
    key = BROKER_KEYS.get(name)
    return None if key is None else key.update_mode


def _refuse(names: Iterable[str], reason: str) -> None:
    refused = sorted(names)
    if refused:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{reason}: Set({', '.join(refused)})")


def legal_settings(settings: Mapping[str, str], keys: Mapping[str, ConfigKey]) -> dict[str, str]:
    """Stored settings without those that no longer parse, as after a downgrade; unknown keys stay."""
    legal = {}
    for name, value in settings.items():
        try:
            if name in keys:
                keys[name].parse(value)
        except ConfigError as error:
            logger.error("A stored setting is left out: %s", error)
            continue
        legal[name] = value
    return legal
