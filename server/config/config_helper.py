"""The description of the configuration of a resource for clients (Kafka: ConfigHelper)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ...protocol.config_resources import ConfigResourceType, ConfigSource
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ..metadata.topic_names import check_name
from .broker_config import BrokerConfig
from .broker_loggers import logger_levels
from .dynamic_config import broker_key
from .keys.catalogue import BROKER_KEYS, GROUP_SYNONYMS, TOPIC_KEYS, TOPIC_SYNONYMS, group_documentation, synonyms
from .keys.definition import NO_EFFECT, ConfigKey, ConfigValue
from .keys.validators import ConfigError
from .named_configs import NAMED_KINDS

if TYPE_CHECKING:
    from .config_repository import ConfigRepository

LONGEST_NUMBER = 64
"""Characters of a broker id: Java ignores leading zeros, and Python refuses to parse thousands of them."""
_Synonyms = list[DescribeConfigsSynonym]


def parse_broker_id(name: str) -> int | None:
    """Return the broker id in a resource's name; None unless it is an integer of 32 bits."""
    digits = name[1:] if name[:1] in ("+", "-") else name
    if len(name) > LONGEST_NUMBER or not (digits.isascii() and digits.isdigit()):
        return None
    number = int(name)
    return number if -(2**31) <= number < 2**31 else None


class ConfigHelper:
    """Answers for one request, which may want synonyms and documentation with every entry."""

    def __init__(self, configs: ConfigRepository, *, with_synonyms: bool, with_documentation: bool) -> None:
        self._configs = configs
        self._topic_defaults = configs.config.topic_defaults()
        self._layers = _layers(configs.config)
        self._chains: dict[str, _Synonyms] = {}
        self._known: dict[tuple[ConfigResourceType, object], Sequence[DescribeConfigsResourceResult]] = {}
        self._with_synonyms = with_synonyms
        self._with_documentation = with_documentation

    def describe(self, resource_type: int, name: str, keys: Sequence[str] | None) -> DescribeConfigsResult:
        """Return the entries of one resource, all or the requested ones; a failure is an error code of this result."""
        result = DescribeConfigsResult(resource_type=resource_type, resource_name=name, error_message=None)
        wanted = frozenset(keys) if keys else None
        try:
            entries = self._known_entries(ConfigResourceType(resource_type), name, resource_type)
            result.configs = [entry for entry in entries if wanted is None or entry.name in wanted]
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = error.message
        return result

    def _known_entries(
        self, resource_type: ConfigResourceType, name: str, number: int
    ) -> Sequence[DescribeConfigsResourceResult]:
        """Entries of a resource, worked out once for all names that mean the same: a request may have very many."""
        same: object = name
        if resource_type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
            broker_id = parse_broker_id(name)
            same = name if broker_id is None else broker_id
        elif resource_type in NAMED_KINDS and not self._configs.dynamic_config.named_config(resource_type, name):
            same = bool(name)
        entries = self._known.get((resource_type, same))
        if entries is None:
            entries = self._known[resource_type, same] = tuple(self._entries(resource_type, name, number))
        return entries

    def _entries(
        self, resource_type: ConfigResourceType, name: str, number: int
    ) -> Iterator[DescribeConfigsResourceResult]:
        if resource_type is ConfigResourceType.TOPIC:
            return self._topic(name)
        if resource_type is ConfigResourceType.BROKER:
            return self._this_broker(name) if name else self._all_brokers()
        if resource_type is ConfigResourceType.BROKER_LOGGER:
            return self._loggers(name)
        if resource_type in NAMED_KINDS:
            return self._named(resource_type, name)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {number}")

    def _topic(self, topic: str) -> Iterator[DescribeConfigsResourceResult]:
        check_name(topic)
        if topic not in self._configs.metadata:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")
        return self.topic_with(self._configs.dynamic_config.topic_config(topic))

    def topic_with(self, own: Mapping[str, str]) -> Iterator[DescribeConfigsResourceResult]:
        """Entries of a topic with settings of its own, whether it is there or would be."""
        for name, key in TOPIC_KEYS.items():
            if key.internal and name not in own:
                continue
            raw = own.get(name, self._topic_defaults.get(name))
            value = key.format(key.default if raw is None else key.parse(raw))
            broker_name = TOPIC_SYNONYMS.get(name)
            chain = self._broker_synonyms(broker_name) if broker_name is not None else []
            if name in own:
                chain.insert(0, DescribeConfigsSynonym(name=name, value=value, source=ConfigSource.TOPIC))
            yield self._entry(name, key, value, chain, key.documentation)

    def _this_broker(self, name: str) -> Iterator[DescribeConfigsResourceResult]:
        self._check_is_here(name, "or empty string, ")
        config = self._configs.config
        set_somewhere = config.effective_properties(config.cluster_overrides, config.broker_overrides)
        for key_name, key in BROKER_KEYS.items():
            if not key.internal or key_name in set_somewhere:
                yield self._broker_entry(key_name, key, config.get(key_name), self._broker_synonyms(key_name))
        for key_name, raw in set_somewhere.items():
            if key_name not in BROKER_KEYS:
                yield self._unlisted_entry(key_name, raw, self._broker_synonyms(key_name))

    def _all_brokers(self) -> Iterator[DescribeConfigsResourceResult]:
        """Yield the cluster-wide dynamic settings, and nothing else."""
        for name, raw in self._configs.config.cluster_overrides.items():
            source = ConfigSource.DYNAMIC_DEFAULT_BROKER
            chain = [synonym for synonym in self._broker_synonyms(name) if synonym.source == source]
            key = BROKER_KEYS.get(name)
            if key is None:
                yield self._unlisted_entry(name, raw, chain)
            else:
                entry = self._broker_entry(name, key, _parsed(key, raw), chain)
                if entry.value is None and not key.sensitive:
                    entry.value = raw  # a variable of a config provider, which Kafka shows here as it is stored
                yield entry

    def _loggers(self, name: str) -> Iterator[DescribeConfigsResourceResult]:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        self._check_is_here(name)
        for logger_name, level in logger_levels().items():
            yield DescribeConfigsResourceResult(
                name=logger_name,
                value=level,
                config_source=ConfigSource.DYNAMIC_BROKER_LOGGER,
                documentation=None,
            )

    def _check_is_here(self, name: str, alternative: str = "") -> None:
        """Raise KafkaError INVALID_REQUEST unless `name` is the id of this broker: each describes only itself."""
        number = parse_broker_id(name)
        if number is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
        if number != self._configs.broker_id:
            expected = f"{self._configs.broker_id} {alternative}"
            reason = f"Unexpected broker id, expected {expected}but received {name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)

    def _named(self, resource_type: ConfigResourceType, name: str) -> Iterator[DescribeConfigsResourceResult]:
        kind = NAMED_KINDS[resource_type]
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, kind.describe_without_name)
        own = self._configs.dynamic_config.named_config(resource_type, name)
        for key_name, key in kind.keys.items():
            chain = self._group_synonyms(key_name) if resource_type is ConfigResourceType.GROUP else []
            if key.internal and key_name not in own and not any(one.source != ConfigSource.DEFAULT for one in chain):
                continue
            value = key.format(kind.default(self._configs.config, key_name))
            if key_name in own:
                value = key.format(key.parse(own[key_name]))
                chain.insert(0, DescribeConfigsSynonym(name=key_name, value=value, source=kind.source))
            documentation = key.documentation
            if resource_type is ConfigResourceType.GROUP:
                documentation = group_documentation(key_name) or NO_EFFECT
            yield self._entry(key_name, key, value, chain, documentation)

    def _group_synonyms(self, name: str) -> _Synonyms:
        """Return the layers of the broker key with the default of a group key, or else the default of the key."""
        if name in GROUP_SYNONYMS:
            return self._broker_synonyms(GROUP_SYNONYMS[name])
        key = NAMED_KINDS[ConfigResourceType.GROUP].keys[name]
        return [DescribeConfigsSynonym(name=name, value=key.format(key.default), source=ConfigSource.DEFAULT)]

    def _broker_entry(
        self, name: str, key: ConfigKey, value: ConfigValue, chain: _Synonyms
    ) -> DescribeConfigsResourceResult:
        entry = self._entry(name, key, key.format(value), chain, key.documentation)
        entry.read_only = not key.is_dynamic
        return entry

    def _unlisted_entry(self, name: str, raw: str, chain: _Synonyms) -> DescribeConfigsResourceResult:
        """Return the entry of a key with a listener's prefix, or of an unknown key.

        It may be a secret, so it is marked as sensitive.
        """
        key = broker_key(name)
        if key is not None:
            entry = self._broker_entry(name, key, _parsed(key, raw), chain)
            entry.read_only = False
            return entry
        entry = DescribeConfigsResourceResult(name=name, value=None, is_sensitive=True, read_only=True)
        return self._finish(entry, chain, NO_EFFECT)

    def _entry(
        self, name: str, key: ConfigKey, value: str | None, chain: _Synonyms, documentation: str
    ) -> DescribeConfigsResourceResult:
        entry = DescribeConfigsResourceResult(
            name=name, value=None if key.sensitive else value, is_sensitive=key.sensitive, config_type=key.type
        )
        return self._finish(entry, chain, documentation)

    def _finish(
        self, entry: DescribeConfigsResourceResult, chain: _Synonyms, documentation: str
    ) -> DescribeConfigsResourceResult:
        entry.config_source = chain[0].source if chain else ConfigSource.DEFAULT
        if self._with_synonyms:
            entry.synonyms = chain
        entry.documentation = documentation if self._with_documentation else None
        return entry

    def _broker_synonyms(self, name: str) -> _Synonyms:
        """Return every setting that applies to a broker key, the layer with precedence first.

        As in Kafka the chain begins with the key itself: keys with other names before it are left out.
        """
        if name not in self._chains:
            self._chains[name] = self._find_synonyms(name)
        return self._chains[name].copy()

    def _find_synonyms(self, name: str) -> _Synonyms:
        key = broker_key(name)
        hidden = key is None or key.sensitive
        chain = [
            DescribeConfigsSynonym(name=synonym, value=None if hidden else layer[synonym], source=source)
            for source, layer in self._layers
            for synonym in synonyms(name)
            if synonym in layer
        ]
        while chain and chain[0].name != name:
            chain.pop(0)
        return chain


def _layers(config: BrokerConfig) -> tuple[tuple[ConfigSource, Mapping[str, str]], ...]:
    return (
        (ConfigSource.DYNAMIC_BROKER, config.broker_overrides),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, config.cluster_overrides),
        (ConfigSource.STATIC_BROKER, config.static),
        (ConfigSource.DEFAULT, _DEFAULT_TEXTS),
    )


def _parsed(key: ConfigKey, raw: str) -> ConfigValue:
    try:
        return key.parse(raw)
    except ConfigError:
        return None


_DEFAULT_TEXTS: Mapping[str, str] = {
    name: text for name, key in BROKER_KEYS.items() if (text := key.format(key.default)) is not None
}
