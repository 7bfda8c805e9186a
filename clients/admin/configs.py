"""Settings of topics and brokers: their values, and changes to single keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ...protocol.config_resources import ConfigOperation, ConfigResource, ConfigResourceType, ConfigSource


class ConfigChange(NamedTuple):
    """One change to one key."""

    name: str
    value: str | None
    operation: ConfigOperation = ConfigOperation.SET


class ConfigEntry(NamedTuple):
    """One key with its effective value; the value of a sensitive key is None."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    is_sensitive: bool
    documentation: str | None


def group_by_broker(resources: Iterable[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
    """Group resources by the broker that answers for them; None stands for any broker.

    Only the broker itself answers for the settings of one broker.
    """
    groups: dict[int | None, list[ConfigResource]] = {}
    for resource in resources:
        is_of_a_broker = resource.type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
        own = is_of_a_broker and resource.name.isdecimal()
        groups.setdefault(int(resource.name) if own else None, []).append(resource)
    return groups


def config_entry(config: Any) -> ConfigEntry:
    return ConfigEntry(
        config.name,
        config.value,
        ConfigSource.DEFAULT if config.is_default else ConfigSource(config.config_source),
        config.read_only,
        config.is_sensitive,
        config.documentation,
    )
