"""Where the configuration of every resource is found: in force, stored, and for which resources."""

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
