"""The settings that a group may have of its own (Kafka: GroupConfig, KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from ...protocol.errors import ErrorCode, KafkaError
from .keys.catalogue import BROKER_KEYS, GROUP_KEYS
from .keys.definition import ConfigValue
from .keys.validators import ConfigError

if TYPE_CHECKING:
    from .broker_config import BrokerConfig

_BOUNDED = ("heartbeat.interval.ms", "session.timeout.ms")


def group_default(config: BrokerConfig, name: str) -> ConfigValue:
    """What holds for a group that says nothing: the broker's setting, if there is one of that name."""
    broker_name = f"group.{name}"
    return config.get(broker_name) if broker_name in BROKER_KEYS else GROUP_KEYS[name].default


def check_group_config(config: BrokerConfig, settings: Mapping[str, str]) -> None:
    """Raises KafkaError INVALID_CONFIG unless a group may have these settings on a broker."""
    values: dict[str, ConfigValue] = {}
    for name, raw in settings.items():
        if name not in GROUP_KEYS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
        try:
            values[name] = GROUP_KEYS[name].parse(raw)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    for kind in ("consumer", "share", "streams"):
        _check_kind(config, kind, values)


def _check_kind(config: BrokerConfig, kind: str, values: Mapping[str, ConfigValue]) -> None:
    def value(what: str) -> int:
        name = f"{kind}.{what}"
        return cast("int", values[name] if name in values else group_default(config, name))

    for what in _BOUNDED:
        if f"{kind}.{what}" not in values:
            continue
        for bound, wrong in (("min", int.__lt__), ("max", int.__gt__)):
            limit = f"group.{kind}.{bound}.{what}"
            if wrong(value(what), cast("int", config.get(limit))):
                direction = "greater" if bound == "min" else "less"
                reason = f"{kind}.{what} must be {direction} than or equal to {limit}"
                raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
    heartbeat, session = _BOUNDED
    if value(session) <= value(heartbeat):
        reason = f"{kind}.{session} must be greater than {kind}.{heartbeat}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
