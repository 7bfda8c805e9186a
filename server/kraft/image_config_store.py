"""The settings, quotas and SCRAM credentials of a KRaft cluster, read as from a ConfigStore."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from ...protocol.config_resources import ConfigResourceType
from ...protocol.sasl_server import ScramCredential
from ..image.scram_image import ScramCredentialKey
from ..metadata.config_store import ConfigStore
from ..metadata.scram_store import MECHANISMS
from ..metadata.znodes import DEFAULT_ENTITY, user_node
from ..quotas.entities import CLIENT_ID, IP, USER, quota_text
from ..quotas.stored_quotas import entity_at, quota_node
from ..runtime.loop_sharing import CountBudget

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from .published_image import PublishedImage

RESOURCE_TYPES = {
    "topics": ConfigResourceType.TOPIC,
    "brokers": ConfigResourceType.BROKER,
    "groups": ConfigResourceType.GROUP,
    "client-metrics": ConfigResourceType.CLIENT_METRICS,
}
MECHANISM_NUMBERS = {mechanism: number for number, mechanism in enumerate(MECHANISMS, start=1)}
"""Kafka's ScramMechanism: SCRAM-SHA-256 is 1, SCRAM-SHA-512 is 2."""
_ENTITY_TYPES = {"users": USER, "clients": CLIENT_ID, "ips": IP}


class ImageConfigStore(ConfigStore):
    """The published image in the form of the settings in a metadata tree. Used on the loop's thread only.

    Only the controller changes settings, so no method that writes is called.
    """

    def __init__(self, published: PublishedImage) -> None:
        self._published = published

    async def names(self, entity_type: str) -> list[str]:
        """Return the nodes of all entities of a type as `ConfigStore.names` does."""
        return await self._names(entity_type)

    async def _names(self, entity_type: str) -> list[str]:
        image = self._published.image
        resource_type = RESOURCE_TYPES.get(entity_type)
        if resource_type is not None:
            return [_resource_node(name) for kind, name in image.configs.configs if kind == resource_type]
        wanted = _ENTITY_TYPES[entity_type]
        nodes = dict.fromkeys(
            _node(name)
            for entity in image.client_quotas.entities
            for kind, name in entity
            if kind == wanted and (kind != CLIENT_ID or len(entity) == 1)
        )
        if wanted == USER:
            nodes |= dict.fromkeys(user_node(key.user) for key in image.scram.credentials)
        return list(nodes)

    async def client_configs(self) -> AsyncIterator[tuple[str, str, dict[str, str]]]:
        """Yield the quotas of all entities as `ConfigStore.client_configs` does, in one pass over the image."""
        image, budget = self._published.image, CountBudget()
        for entity, quotas in image.client_quotas.entities.items():
            named = dict(entity)
            entity_type, name = quota_node(named)
            yield entity_type, name, {key: quota_text(named, key, value) for key, value in quotas.items()}
            await budget.step()

    async def _config(self, entity_type: str, name: str) -> dict[str, str]:
        image = self._published.image
        resource_type = RESOURCE_TYPES.get(entity_type)
        if resource_type is not None:
            return dict(image.configs.config(resource_type, _resource_name(name)))
        entity = entity_at(entity_type, name)
        quotas: Mapping[str, float] = image.client_quotas.entities.get(
            tuple(sorted(entity.items(), key=lambda part: part[0])), {}
        )
        config = {key: quota_text(entity, key, value) for key, value in quotas.items()}
        user = entity.get(USER)
        if user is not None and len(entity) == 1:
            for mechanism, number in MECHANISM_NUMBERS.items():
                data = image.scram.credentials.get(ScramCredentialKey(user, number))
                if data is not None:
                    config[mechanism] = ScramCredential(*data).text()
        return config


def _resource_node(name: str) -> str:
    """Return the node of a resource; a broker without a name is the default of all brokers."""
    return user_node(name) if name else DEFAULT_ENTITY


def _resource_name(node: str) -> str:
    return "" if node == DEFAULT_ENTITY else unquote(node)


def _node(name: str | None) -> str:
    return DEFAULT_ENTITY if name is None else user_node(name)


def _name(node: str) -> str | None:
    return None if node == DEFAULT_ENTITY else unquote(node)
