"""Settings of topics and brokers: their values, sources and descriptions, and changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...clients.admin import ConfigChange, ConfigResource, raise_first
from ...protocol.config_resources import ConfigOperation, ConfigResourceType
from .cluster import WatchedCluster

Facts = dict[str, Any]


class ConfigPages:
    """Responses as JSON. All methods raise KafkaError."""

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster

    async def describe(self, kind: ConfigResourceType, name: str) -> Facts:
        """Return effective settings, their sources, and their descriptions."""
        resource = ConfigResource(kind, name)
        found = await self._cluster.admin.describe_configs([resource], documentation=True)
        return {
            "configs": [
                {
                    "name": entry.name,
                    "value": entry.value,
                    "source": entry.source.name.lower().replace("_", " "),
                    "read_only": entry.read_only,
                    "sensitive": entry.is_sensitive,
                    "doc": entry.documentation,
                }
                for entry in found[resource]
            ]
        }

    async def alter(self, kind: ConfigResourceType, name: str, body: Mapping[str, Any]) -> Facts:
        """Change one setting: its value, or None to reset it."""
        key, value = str(body.get("key", "")), body.get("value")
        how = ConfigOperation.DELETE if value is None else ConfigOperation.SET
        change = ConfigChange(key, None if value is None else str(value), how)
        raise_first(await self._cluster.admin.alter_configs({ConfigResource(kind, name): [change]}))
        self._cluster.forget()
        return {"done": True}
