"""The configuration of every resource: the settings in force, the stored ones, and the resources that have any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..metadata.config_store import ConfigStore
    from ..metadata.metadata_cache import MetadataCache
    from .broker_config import BrokerConfig
    from .dynamic_config import DynamicConfig


@dataclass(frozen=True, slots=True)
class ConfigRepository:
    """Kafka's ConfigRepository: the configuration of every resource. It is used on the loop thread."""

    broker_id: int
    dynamic_config: DynamicConfig
    """The effective settings, and the lock for changes."""
    config_store: ConfigStore
    """The stored settings."""
    metadata: MetadataCache
    """Return the names of all topics."""

    @property
    def config(self) -> BrokerConfig:
        """The settings of this broker."""
        return self.dynamic_config.config
