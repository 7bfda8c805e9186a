"""Settings of a KRaft cluster, and their changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...protocol.config_resources import ConfigResource, ConfigResourceType
from ...protocol.metadata_records import ConfigRecord
from ..runtime.loop_sharing import CountBudget
from .map_changes import with_changes


@dataclass(frozen=True, slots=True)
class ConfigurationsImage:
    """The settings of each resource that has any."""

    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)

    def config(self, resource_type: ConfigResourceType, name: str) -> Mapping[str, str]:
        """Return the settings of a resource."""
        return self.configs.get(ConfigResource(resource_type, name), {})

    def write(self) -> Iterator[tuple[Any, int]]:
        """Yield the records of all settings, with their versions."""
        for resource, config in self.configs.items():
            for name, value in config.items():
                yield ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value), 0


class ConfigurationsDelta:
    """The changes of settings, None for a removed one. `image` has the settings before them."""

    def __init__(self, image: ConfigurationsImage) -> None:
        self.image = image
        self.changes: dict[ConfigResource, dict[str, str | None]] = {}

    def replay(self, record: ConfigRecord) -> None:
        """Set or remove a setting."""
        resource = ConfigResource(ConfigResourceType(record.resource_type), record.resource_name)
        self.changes.setdefault(resource, {})[record.name] = record.value

    def delete_topic(self, name: str) -> None:
        """Remove the settings of a deleted topic. A record in between may have set settings of it too."""
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        self.changes[resource] = dict.fromkeys(self.image.configs.get(resource, ()))
        if not self.changes[resource]:
            del self.changes[resource]

    def apply(self) -> ConfigurationsImage:
        """Return the settings after the changes."""
        configs = dict(self.image.configs)
        for resource, changes in self.changes.items():
            config = with_changes(configs.get(resource, {}), changes)
            if config:
                configs[resource] = config
            else:
                configs.pop(resource, None)
        return ConfigurationsImage(configs)

    @classmethod
    async def between(
        cls, before: ConfigurationsImage, after: ConfigurationsImage, budget: CountBudget
    ) -> ConfigurationsDelta | None:
        """Return the changes that make `after` of `before`; None without any."""
        delta = cls(before)
        for resource, config in after.configs.items():
            known = before.configs.get(resource, {})
            if known != config:
                changes: dict[str, str | None] = {k: v for k, v in config.items() if known.get(k) != v}
                delta.changes[resource] = changes | dict.fromkeys(known.keys() - config.keys())
            await budget.step()
        for resource, config in before.configs.items():
            if resource not in after.configs:
                delta.changes[resource] = dict.fromkeys(config)
            await budget.step()
        return delta if delta.changes else None
