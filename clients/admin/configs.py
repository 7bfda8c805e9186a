"""Settings of topics and brokers: what is in force, and single changes to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ...protocol.apis import ApiKey
from ...protocol.config_resources import ConfigOperation, ConfigResourceType, ConfigSource
from ...protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ...protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ..client import Client
from .controller_link import ControllerLink
from .outcomes import Outcome, outcome, raise_error


class ConfigResource(NamedTuple):
    """A topic by name, or a broker by id as text (empty: all brokers)."""

    type: ConfigResourceType
    name: str


class ConfigChange(NamedTuple):
    """One change to one key."""

    name: str
    value: str | None
    operation: ConfigOperation = ConfigOperation.SET


class ConfigEntry(NamedTuple):
    """One key as it is in force; the value of a sensitive one is None."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    is_sensitive: bool
    documentation: str | None


class ConfigAdmin:
    """What `Admin` does with settings."""

    def __init__(self, client: Client, controller: ControllerLink) -> None:
        self._client = client
        self._controller = controller

    async def describe_configs(
        self, resources: Iterable[ConfigResource], *, documentation: bool = False
    ) -> dict[ConfigResource, list[ConfigEntry]]:
        """All settings of these resources, by name. Raises KafkaError for the first that cannot be described."""
        described: dict[ConfigResource, list[ConfigEntry]] = {}
        for node, group in _by_broker(resources).items():
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=r.type, resource_name=r.name, configuration_keys=None)
                    for r in group
                ]
            )
            connection = await (self._client.any_connection() if node is None else self._client.connection(node))
            version = connection.version_for(ApiKey.DESCRIBE_CONFIGS)
            request.include_documentation = documentation and version >= 3
            response = await connection.send(request, version)
            for result in response.results:
                raise_error(result.error_code, result.error_message)
                resource = ConfigResource(ConfigResourceType(result.resource_type), result.resource_name)
                described[resource] = sorted(map(_config_entry, result.configs))
        return described

    async def alter_configs(
        self, changes: Mapping[ConfigResource, Iterable[ConfigChange]], *, validate_only: bool = False
    ) -> dict[ConfigResource, Outcome]:
        """Change single keys (KIP-339, brokers since 2.3); other keys stay."""
        outcomes: dict[ConfigResource, Outcome] = {}
        for node, group in _by_broker(changes).items():
            request = IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=r.type,
                        resource_name=r.name,
                        configs=[
                            AlterableConfig(name=c.name, value=c.value, config_operation=c.operation)
                            for c in changes[r]
                        ],
                    )
                    for r in group
                ],
                validate_only=validate_only,
            )
            if node is None:
                response = await self._controller.ask(request, "responses")
            else:
                response = await self._client.ask(node, request)
            for r in response.responses:
                resource = ConfigResource(ConfigResourceType(r.resource_type), r.resource_name)
                outcomes[resource] = outcome(r.error_code, r.error_message)
        return outcomes


def _by_broker(resources: Iterable[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
    """Settings of one broker are that broker's business; all others anybody can answer (None)."""
    groups: dict[int | None, list[ConfigResource]] = {}
    for resource in resources:
        own = resource.type is not ConfigResourceType.TOPIC and resource.name.isdecimal()
        groups.setdefault(int(resource.name) if own else None, []).append(resource)
    return groups


def _config_entry(config: Any) -> ConfigEntry:
    return ConfigEntry(
        config.name,
        config.value,
        ConfigSource.DEFAULT if config.is_default else ConfigSource(config.config_source),
        config.read_only,
        config.is_sensitive,
        config.documentation,
    )
