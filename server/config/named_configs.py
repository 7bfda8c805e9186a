"""The kinds of resources that have settings under any name, whether or not anything else is known by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...protocol.config_resources import ConfigResourceType, ConfigSource
from .client_metrics_config import check_client_metrics_config
from .group_config import check_group_config, group_default
from .keys.catalogue import CLIENT_METRICS_KEYS, GROUP_KEYS
from .keys.definition import ConfigKey, ConfigValue

if TYPE_CHECKING:
    from .broker_config import BrokerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedKind:
    """What tells one such kind from another."""

    entity_type: str
    """As the metadata tree names it: the parent of the settings."""
    keys: Mapping[str, ConfigKey]
    source: ConfigSource
    default: Callable[[BrokerConfig, str], ConfigValue]
    has_default_synonym: bool
    check: Callable[[BrokerConfig, Mapping[str, str]], None]
    """Raises KafkaError unless one may have all these settings."""
    alter_without_name: str
    describe_without_name: str


NAMED_KINDS: Mapping[ConfigResourceType, NamedKind] = MappingProxyType(
    {
        ConfigResourceType.CLIENT_METRICS: NamedKind(
            entity_type="client-metrics",
            keys=CLIENT_METRICS_KEYS,
            source=ConfigSource.CLIENT_METRICS,
            default=lambda _, name: CLIENT_METRICS_KEYS[name].default,
            has_default_synonym=False,
            check=check_client_metrics_config,
            alter_without_name="Subscription name can't be empty",
            describe_without_name="Client metrics subscription name must not be empty",
        ),
        ConfigResourceType.GROUP: NamedKind(
            entity_type="groups",
            keys=GROUP_KEYS,
            source=ConfigSource.GROUP,
            default=group_default,
            has_default_synonym=True,
            check=check_group_config,
            alter_without_name="Default group resources are not allowed.",
            describe_without_name="Group name must not be empty",
        ),
    }
)
