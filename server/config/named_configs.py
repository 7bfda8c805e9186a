"""Settings of groups (Kafka: GroupConfig, KIP-848) and client metrics subscriptions (ClientMetricsConfigs, KIP-714).

A group or subscription may have settings before anything else of it exists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from ...protocol.config_resources import ConfigResourceType, ConfigSource
from ...protocol.errors import ErrorCode, KafkaError
from ..patterns.java_regex import is_java_regex
from .keys.catalogue import CLIENT_METRICS_KEYS, GROUP_KEYS, GROUP_SYNONYMS
from .keys.definition import ConfigKey, ConfigValue
from .keys.validators import ConfigError

if TYPE_CHECKING:
    from .broker_config import BrokerConfig

_LEAST_INTERVAL_MS = 100
_MAX_INTERVAL_MS = 3_600_000
_NO_MINIMUM, _NO_MAXIMUM = -(2**31), 2**31 - 1
_LONGEST_VALUE = 2**15 - 1
"""The maximum in characters: Java's clients accept no longer string, and checking it would delay other requests."""
_SELECTORS = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
_HEARTBEAT, _SESSION = "heartbeat.interval.ms", "session.timeout.ms"
# Group keys whose value is limited by keys of the broker: the keys of the minimum and the maximum.
_LIMITS: Mapping[str, tuple[str | None, str | None]] = MappingProxyType(
    {
        **{
            f"{kind}.{what}": (f"group.{kind}.min.{what}", f"group.{kind}.max.{what}")
            for kind in ("consumer", "share", "streams")
            for what in (_HEARTBEAT, _SESSION, "assignment.interval.ms")
        },
        **{
            f"share.{what}": (f"group.share.min.{what}", f"group.share.max.{what}")
            for what in ("record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks")
        },
        "streams.num.standby.replicas": (None, "group.streams.max.standby.replicas"),
        "streams.num.warmup.replicas": (None, "group.streams.max.warmup.replicas"),
        "streams.task.offset.interval.ms": ("group.streams.min.task.offset.interval.ms", None),
    }
)
_TAGS = "streams.rack.aware.assignment.tags"
_ASSIGNOR = "streams.assignor.name"
_DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedKind:
    """A type of resource: groups or client metrics subscriptions."""

    entity_type: str
    """Name of the parent node of the settings in the metadata tree."""
    keys: Mapping[str, ConfigKey]
    source: ConfigSource
    default: Callable[[BrokerConfig, str], ConfigValue]
    check: Callable[[BrokerConfig, Mapping[str, str]], None]
    """Raises KafkaError unless all these settings are valid together."""
    alter_without_name: str
    describe_without_name: str


def group_default(config: BrokerConfig, name: str) -> ConfigValue:
    """Return the value for a group without the setting: the broker's setting, if there is one for all groups."""
    if name == _ASSIGNOR:
        return config.group_streams_assignors[0]
    return config.get(GROUP_SYNONYMS[name]) if name in GROUP_SYNONYMS else GROUP_KEYS[name].default


def effective_group_value(config: BrokerConfig, name: str, raw: str | None) -> ConfigValue:
    """Return the value that applies to a group with the setting `raw`, or without a setting (None).

    Kafka: GroupConfig.evaluate. A setting beyond a limit of the broker, which may have
    changed after it, is replaced by the limit.
    """
    if raw is None:
        return group_default(config, name)
    value = GROUP_KEYS[name].parse(raw)
    if name in _LIMITS:
        least, most = _limits(config, name)
        value = min(max(cast("int", value), least), most)
    return value


def _limits(config: BrokerConfig, name: str) -> tuple[int, int]:
    low, high = _LIMITS[name]
    least = _NO_MINIMUM if low is None else cast("int", config.get(low))
    return least, _NO_MAXIMUM if high is None else cast("int", config.get(high))


def check_group_config(config: BrokerConfig, settings: Mapping[str, str]) -> None:
    """Raise KafkaError INVALID_CONFIG unless a group may have these settings on a broker."""
    values: dict[str, ConfigValue] = {}
    for name, raw in settings.items():
        if name not in GROUP_KEYS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
        try:
            values[name] = GROUP_KEYS[name].parse(raw)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    _check_tags(settings.get(_TAGS, ""))
    for name in values.keys() & _LIMITS.keys():
        _check_limits(config, name, cast("int", values[name]))
    assignors = config.group_streams_assignors
    if _ASSIGNOR in values and values[_ASSIGNOR] not in assignors:
        reason = f"{_ASSIGNOR} '{values[_ASSIGNOR]}' is not a registered task assignor. Registered assignors are: "
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{reason}[{', '.join(assignors)}].")
    for kind in ("consumer", "share", "streams"):
        _check_session(config, kind, values)
    if str(values.get(_DEAD_LETTER_TOPIC, "")).startswith("__"):
        reason = f"{_DEAD_LETTER_TOPIC}: DLQ topic name must not start with '__'"
        raise KafkaError(ErrorCode.INVALID_CONFIG, reason)


def _check_tags(raw: str) -> None:
    """Refuse duplicate tags, which other lists drop."""
    if GROUP_KEYS[_TAGS].duplicates(raw):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{_TAGS} must not contain duplicate tag keys.")


def _check_limits(config: BrokerConfig, name: str, value: int) -> None:
    least, most = _limits(config, name)
    if least <= value <= most:
        return
    if least == _NO_MINIMUM:
        reason = f"{name} must be less than or equal to {most}"
    elif most == _NO_MAXIMUM:
        reason = f"{name} must be greater than or equal to {least}"
    else:
        reason = f"{name} must be in the range {least} to {most} inclusive."
    raise KafkaError(ErrorCode.INVALID_CONFIG, reason)


def _check_session(config: BrokerConfig, kind: str, values: Mapping[str, ConfigValue]) -> None:
    heartbeat, session = f"{kind}.{_HEARTBEAT}", f"{kind}.{_SESSION}"
    if heartbeat not in values and session not in values:
        return

    def value(name: str) -> int:
        return cast("int", values[name] if name in values else group_default(config, name))

    if value(session) <= value(heartbeat):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{session} must be greater than {heartbeat}")


def check_client_metrics_config(_: BrokerConfig, settings: Mapping[str, str]) -> None:
    """Raise KafkaError INVALID_REQUEST or INVALID_CONFIG unless a subscription may have these settings."""
    for name, raw in settings.items():
        if name not in CLIENT_METRICS_KEYS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
        if len(raw) > _LONGEST_VALUE:
            reason = f"The value of {name} has {len(raw)} characters, {_LONGEST_VALUE} at most are allowed"
            raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
    try:
        values = {name: CLIENT_METRICS_KEYS[name].parse(raw) for name, raw in settings.items()}
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    interval_ms = cast("int", values.get("interval.ms", _MAX_INTERVAL_MS))
    if not _LEAST_INTERVAL_MS <= interval_ms <= _MAX_INTERVAL_MS:
        reason = f"Invalid value {interval_ms} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    for pattern in cast("tuple[str, ...]", values.get("match", ())):
        if not _is_client_pattern(pattern):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")


def _is_client_pattern(text: str) -> bool:
    """Whether the text is a selector, `=` and a regular expression. Java drops empty parts at the end of a split."""
    parts = text.rstrip("=").split("=")
    return len(parts) == 2 and parts[0].strip() in _SELECTORS and is_java_regex(parts[1].strip())


NAMED_KINDS: Mapping[ConfigResourceType, NamedKind] = MappingProxyType(
    {
        ConfigResourceType.CLIENT_METRICS: NamedKind(
            entity_type="client-metrics",
            keys=CLIENT_METRICS_KEYS,
            source=ConfigSource.CLIENT_METRICS,
            default=lambda _, name: CLIENT_METRICS_KEYS[name].default,
            check=check_client_metrics_config,
            alter_without_name="Subscription name can't be empty",
            describe_without_name="Client metrics subscription name must not be empty",
        ),
        ConfigResourceType.GROUP: NamedKind(
            entity_type="groups",
            keys=GROUP_KEYS,
            source=ConfigSource.GROUP,
            default=group_default,
            check=check_group_config,
            alter_without_name="Default group resources are not allowed.",
            describe_without_name="Group name must not be empty",
        ),
    }
)
