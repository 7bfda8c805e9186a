"""The configuration of every resource: the settings in force, the stored ones, and the resources that have any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .config_admin_manager import ConfigAdminManager
from .config_helper import ConfigHelper

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...protocol.config_resources import ConfigResourceType
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

    def describer(self, *, with_synonyms: bool, with_documentation: bool) -> ConfigHelper:
        """Return the object that describes resources for one request."""
        return ConfigHelper(self, with_synonyms=with_synonyms, with_documentation=with_documentation)

    def changer(self, *, validate_only: bool) -> ConfigAdminManager:
        """Return the object that changes resources for one request."""
        return ConfigAdminManager(self, validate_only=validate_only)

    def configured(self, resource_type: ConfigResourceType) -> Iterable[str]:
        """Return the names of the resources with settings, as `DynamicConfig.configured`."""
        return self.dynamic_config.configured(resource_type)
