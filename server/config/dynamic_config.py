"""Settings that change at run time: of topics, groups, client metrics subscriptions and brokers (KIP-226)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from ...common.room_logger import room_logger
from ...protocol.config_resources import ConfigResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...storage.log_config import NEVER, LogConfig
from ..metadata.metadata_store import StoreError
from .broker_config import BrokerConfig
from .checks import WAYS_IN, is_zero
from .config_transformer import CONFIG_PROVIDERS, class_key, provider_names
from .keys.catalogue import BROKER_KEYS, DYNAMIC_ONLY_KEYS, TOPIC_KEYS, TOPIC_SYNONYMS, synonyms
from .keys.definition import ConfigKey, ConfigValue, UpdateMode
from .keys.validators import ConfigError
from .message_format import ignored_format
from .named_configs import NAMED_KINDS, effective_group_value
from .password_encoder import StoredPasswords

if TYPE_CHECKING:
    from ..metadata.config_store import ConfigStore
    from ..runtime.ports import Ports

logger = room_logger("config")

_LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]*\.(?P<key>.*)")

# Key material is only ever changed for one listener, so that a broker never loses its way to the others.
_LISTENER_KEYS_ONLY = frozenset(
    name for name in BROKER_KEYS if name.startswith(("ssl.keystore.", "ssl.key.", "ssl.truststore."))
)
_CLUSTER_WIDE_OF_LISTENERS = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})
"""Keys of a listener that can be set for all brokers together (Kafka: ClusterLevelListenerConfigs)."""
_THREADS = ("num.io.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir", "background.threads")
_BROKER_KEYS_OF_LOGS = frozenset(name for key in TOPIC_SYNONYMS.values() for name in synonyms(key)) | {
    "producer.id.expiration.ms"
}
_MESSAGE_FORMAT = "message.format.version"
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


def topic_log_config(config: BrokerConfig, settings: Mapping[str, str] = _NO_SETTINGS) -> LogConfig:
    """Return the LogConfig of a topic with these settings on a broker.

    The topic's settings win over the broker's, and there a value for this broker over one for all brokers over the
    file over the built-in default; in each layer milliseconds win over minutes over hours. As in Kafka 3, a format of
    messages counts only below version 3.0 of `inter.broker.protocol.version`. Raises KafkaError INVALID_CONFIG.
    """
    properties = config.topic_defaults()
    for name, raw in settings.items():
        properties[name] = _canonical(name, raw)
    # The older key, which `before` and `after` replaced, applies to each of them without a limit.
    limit = properties["message.timestamp.difference.max.ms"]
    for name in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"):
        if properties[name] == str(NEVER):
            properties[name] = limit
    if not config.heeds_message_format:
        del properties[_MESSAGE_FORMAT]
    return LogConfig.from_props(properties, LogConfig(producer_id_expiration_ms=config.producer_id_expiration_ms))


def _canonical(name: str, raw: str) -> str:
    """Return the value without the optional blanks, signs and capitals."""
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
    """Kafka's DynamicBrokerConfig, for all resources: applies changed settings. It runs on the loop thread.

    Broker settings change in `BrokerConfig`; callbacks report changes of topics. Nothing is stored here: handlers hold
    `changing`, write to the store first, then call the `..._changed` methods. `ZkConfigManager` calls them for changes
    that other brokers have made.
    """

    def __init__(self, config: BrokerConfig, ports: Ports | None = None) -> None:
        """Raise ConfigError for an unsupported `password.encoder.*`; without `ports` passwords cannot be stored."""
        self.config = config
        self.passwords = StoredPasswords(config, ports)
        self.changing = asyncio.Lock()
        self._topics: dict[str, Mapping[str, str]] = {}
        self._named: dict[ConfigResourceType, dict[str, Mapping[str, str]]] = {kind: {} for kind in NAMED_KINDS}
        self.named_changes = 0
        """The number of changes to settings of the resources in `NAMED_KINDS`."""
        self._default_log_config = topic_log_config(config)
        self._topic_callbacks: list[Callable[[str | None], None]] = []
        self._broker_callbacks: list[Callable[[], None]] = []
        self._validators: list[Callable[[BrokerConfig, Collection[str]], Awaitable[None]]] = []

    async def load(self, store: ConfigStore, broker_id: int) -> None:
        """Take over everything that the store holds; a value that is no longer legal is logged and left out."""
        if not self.config.is_kraft:  # KRaft's metadata has passwords in clear text
            await self._reencode_passwords(store, broker_id)
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

    async def load_broker(self, store: ConfigStore, broker_id: int) -> None:
        """Apply the stored settings of this broker and of all brokers together: each is checked against the other.

        Raises ConfigError, UnreadableNodeError; the settings are unchanged then.
        """
        await self._load_broker(store.broker_config, broker_id)

    async def _load_broker(
        self, config_of: Callable[[int | None], Awaitable[Mapping[str, str]]], broker_id: int
    ) -> None:
        cluster = self._legal_broker_settings(await config_of(None))
        broker = await self.passwords.from_persistent(await config_of(broker_id))
        self._apply(cluster, self._legal_broker_settings(broker))

    def _legal_broker_settings(self, settings: Mapping[str, str]) -> dict[str, str]:
        legal = legal_settings(self.config.resolve(settings), BROKER_KEYS)
        return {name: settings[name] for name in legal}

    async def _reencode_passwords(self, store: ConfigStore, broker_id: int) -> None:
        """Replace stored passwords in clear text or encoded with the old secret (Kafka: maybeReEncodePasswords)."""
        stored = await store.readable_broker_config(broker_id)
        renewed = await self.passwords.reencoded(stored)
        if renewed == stored:
            return
        try:
            await store.set_broker_config(broker_id, renewed)
        except StoreError as error:
            # A store that takes no writes now may still be read: the broker can serve with the passwords as they are.
            logger.error("the stored passwords of broker %d cannot be encoded again: %r", broker_id, error)
        else:
            logger.info("the stored passwords of broker %d are encoded with the current secret", broker_id)

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
        resolved = settings
        try:
            resolved = self._resolve_by_own_providers(settings)
            for name, value in resolved.items():
                key = broker_key(name)
                if key is not None:
                    key.parse(value)
            self.config.check_overrides(cluster, broker)
            before = self.config.effective_properties(self.config.cluster_overrides, self.config.broker_overrides)
            after = self.config.effective_properties(cluster, broker)
            self._check_threads(before, after)
            check_ways_in([listener.name for listener in self.config.listeners], before, after)
        except ConfigError as error:
            reason, raw = str(error), settings.get(error.name)
            if raw is not None and raw != resolved[error.name]:
                # As Kafka: the value of a variable may be a secret.
                reason = f"Invalid value {raw} for configuration {error.name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason) from None

    def _resolve_by_own_providers(self, settings: Mapping[str, str]) -> Mapping[str, str]:
        """Return dynamic settings with the values of the providers that they name. Raises ConfigError.

        As in Kafka (DynamicConfig.validate), variables in values that are not text require `config.providers` in the
        settings of the same resource. Unlike there, the file of the broker must define the providers: otherwise any
        client that may alter settings could read the files of the machine.
        """
        names = provider_names(settings)
        if not names:
            return settings
        transformer = self.config.transformer
        defined = () if transformer is None else transformer.provider_names
        for name in names:
            if class_key(name) in settings and name not in defined:
                reason = f"the file of the broker does not define the config provider {name}. Add it there"
                raise ConfigError(CONFIG_PROVIDERS, settings[CONFIG_PROVIDERS], reason)
        return settings if transformer is None else transformer.only(names).transform(settings)

    def _check_threads(self, before: Mapping[str, str], properties: Mapping[str, str]) -> None:
        check_cleaner_threads(self.config, properties)
        for name in _THREADS:
            default = str(BROKER_KEYS[name].default)
            check_threads(name, int(before.get(name, default)), int(properties.get(name, default)))

    def on_validate(self, validator: Callable[[BrokerConfig, Collection[str]], Awaitable[None]]) -> None:
        """Have `validator` called before settings are stored (Kafka: Reconfigurable.validateReconfiguration).

        It gets the configuration as it would be and the names of the settings in the request, and raises ConfigError.
        """
        self._validators.append(validator)

    async def validate_reconfiguration(
        self, settings: Mapping[str, str], names: Collection[str], *, per_broker: bool
    ) -> None:
        """Raise KafkaError unless the parts of the broker could work with these dynamic settings, files included."""
        cluster = self.config.cluster_overrides if per_broker else settings
        broker = settings if per_broker else self.config.broker_overrides
        try:
            candidate = self.config.with_overrides(cluster, broker)
            for validator in self._validators:
                await validator(candidate, names)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None

    def on_broker_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` when settings of the broker may be others."""
        self._broker_callbacks.append(callback)

    def broker_config_changed(self, settings: Mapping[str, str], *, per_broker: bool) -> None:
        """Replace the dynamic settings of this broker, or else of all brokers. Raises ConfigError."""
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
        """Return the names of all resources of one of the `NAMED_KINDS` that have settings of their own."""
        return self._named[resource_type].keys()

    def named_config(self, resource_type: ConfigResourceType, name: str) -> Mapping[str, str]:
        """Return the own settings of a resource as they were given; empty if it has none."""
        return self._named[resource_type].get(name, _NO_SETTINGS)

    def named_config_changed(self, resource_type: ConfigResourceType, name: str, settings: Mapping[str, str]) -> None:
        """Replace the settings of a group or client-metrics subscription."""
        self.named_changes += 1
        self._named[resource_type].pop(name, None)
        if settings:
            self._named[resource_type][name] = MappingProxyType(dict(settings))

    def group_config(self, group: str, name: str) -> ConfigValue:
        """Return the value of a key in `GROUP_KEYS` that applies to a group.

        It is the group's setting within the broker's limits, else the broker's setting, else the default.
        """
        return effective_group_value(self.config, name, self.named_config(ConfigResourceType.GROUP, group).get(name))

    def group_number(self, group: str, name: str) -> int:
        """Return `group_config` of a key whose values are integers."""
        return cast("int", self.group_config(group, name))

    # Topics

    def on_topic_change(self, callback: Callable[[str | None], None]) -> None:
        """Call `callback` with a topic whose LogConfig has changed; with None if all may have changed."""
        self._topic_callbacks.append(callback)

    def topic_config(self, topic: str) -> Mapping[str, str]:
        """Return the topic's own settings as text; empty if it has none."""
        return self._topics.get(topic, _NO_SETTINGS)

    def topic_log_config(self, topic: str) -> LogConfig:
        """Return the LogConfig of a topic. Topics without settings of their own share one object."""
        settings = self._topics.get(topic)
        return topic_log_config(self.config, settings) if settings else self._default_log_config

    def check_topic_config(self, config: Mapping[str, str]) -> None:
        """Raise KafkaError INVALID_CONFIG unless a topic may have these settings."""
        for name in config:
            if name not in TOPIC_KEYS:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
        log_config = topic_log_config(self.config, config) if config else self._default_log_config
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
        """Replace a topic's own settings; None: the topic is deleted."""
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
    """Check that the number of cleaner threads is at most doubled or halved (Kafka: LogCleaner). Raises ConfigError."""
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
    """Check that no connection limit becomes 0, which would exclude clients that could reset it.

    Kafka: ListenerConnectionQuota. A limit that is 0 in the file does not prevent changes of other settings. Raises
    KafkaError INVALID_REQUEST.
    """
    for key in WAYS_IN:
        for name in (key, *(f"listener.name.{listener.lower()}.{key}" for listener in listeners)):
            if is_zero(key, after.get(name)) and not is_zero(key, before.get(name)):
                reason = f"Invalid {key} 0: no client could connect to change it back"
                raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _update_mode(name: str) -> UpdateMode | None:
    """Return when a key may change: most keys of a listener for one broker; None for an unknown key."""
    match = _LISTENER_PREFIX.fullmatch(name)
    if match:
        return UpdateMode.CLUSTER_WIDE if match["key"] in _CLUSTER_WIDE_OF_LISTENERS else UpdateMode.PER_BROKER
    key = BROKER_KEYS.get(name)
    return None if key is None else key.update_mode


def _refuse(names: Iterable[str], reason: str) -> None:
    refused = sorted(names)
    if refused:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{reason}: [{', '.join(refused)}]")


def legal_settings(settings: Mapping[str, str], keys: Mapping[str, ConfigKey]) -> dict[str, str]:
    """Return stored settings without invalid values, which a downgrade can leave; unknown keys are kept."""
    legal = {}
    for name, value in settings.items():
        try:
            if name in keys:
                keys[name].parse(value)
        except ConfigError as error:
            logger.error("A stored setting is ignored: %s", error)
            continue
        legal[name] = value
    return legal
