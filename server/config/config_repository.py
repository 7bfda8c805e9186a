"""Where the configuration of every resource is found: in force, stored, and for which resources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .config_changes import ConfigChanger
from .config_description import ConfigDescriber

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...protocol.config_resources import ConfigResourceType
    from ..metadata.config_store import ConfigStore
    from ..metadata.metadata_cache import MetadataCache
    from .broker_config import BrokerConfig
    from .dynamic_config import DynamicConfig


@dataclass(frozen=True, slots=True)
class ConfigRepository:
    """What describing and changing configurations needs (Kafka's ConfigRepository). Loop-thread only."""

    broker_id: int
    dynamic_config: DynamicConfig
    """What is in force, and the lock for changing it."""
    config_store: ConfigStore
    """What is stored."""
    metadata: MetadataCache
    """Which topics there are."""

    @property
    def config(self) -> BrokerConfig:
        """The settings of this broker."""
        return self.dynamic_config.config

    def describer(self, *, with_synonyms: bool, with_documentation: bool) -> ConfigDescriber:
        """Who describes resources for one request."""
        return ConfigDescriber(self, with_synonyms=with_synonyms, with_documentation=with_documentation)

    def changer(self, *, validate_only: bool) -> ConfigChanger:
        """Who changes resources for one request."""
        return ConfigChanger(self, validate_only=validate_only)

    def configured(self, resource_type: ConfigResourceType) -> Iterable[str]:
        """As `DynamicConfig.configured`."""
        return self.dynamic_config.configured(resource_type)
