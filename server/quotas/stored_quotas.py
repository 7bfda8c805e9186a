"""The stored form of quotas (KIP-546): settings of users, clients of users, clients and ips in the `ConfigStore`.

Names are percent-encoded, as in Kafka up to 3.9.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from urllib.parse import unquote

from ...common.room_logger import room_logger
from ..metadata.config_store import ConfigStore
from ..metadata.znodes import DEFAULT_ENTITY, user_node
from .entities import ALL_OF_A_CLIENT, CLIENT_ID, IP, QUOTAS, USER, Entity, quota_text

logger = room_logger("config")


async def stored_quotas(config_store: ConfigStore) -> AsyncIterator[tuple[Entity, dict[str, float]]]:
    """Yield every entity that has stored settings, and its quotas, perhaps none. Raises StoreError."""
    async for entity_type, name, config in config_store.client_configs():
        yield entity_at(entity_type, name), _only_quotas(name, config)


async def quotas_at(config_store: ConfigStore, entity_type: str, name: str) -> tuple[Entity, dict[str, float]]:
    """Return the entity of a change notification, and its quotas. `name` is the path below the type.

    Raises ValueError for an invalid path.
    """
    return entity_at(entity_type, name), _only_quotas(name, await config_store.client_config(entity_type, name))


async def alter_stored_quotas(
    config_store: ConfigStore, entity: Entity, changes: Mapping[str, float | None]
) -> dict[str, float]:
    """Set these checked quotas of an entity, remove keys with None, and return all its quotas.

    Other settings of its node are kept. Raises StoreUnavailableError.
    """
    entity_type, name = quota_node(entity)
    before = await config_store.client_config(entity_type, name)
    after = dict(before)
    for key, value in changes.items():
        if value is None:
            after.pop(key, None)
        else:
            after[key] = quota_text(entity, key, value)
    if after != before:
        await config_store.set_client_config(entity_type, name, after)
    return _only_quotas(name, after)


def _only_quotas(where: str, config: Mapping[str, str]) -> dict[str, float]:
    quotas = {}
    for key in QUOTAS:
        try:
            if key in config:
                quotas[key] = float(config[key])
        except ValueError:
            logger.error("The stored quota %s of %s is not a number: %s", key, where, config[key])
    first = ALL_OF_A_CLIENT if all(key in quotas for key in ALL_OF_A_CLIENT) else ()
    return {key: quotas[key] for key in (*first, *quotas)}


def quota_node(entity: Entity) -> tuple[str, str]:
    """Return the type of an entity's settings, and its path below the type."""
    if IP in entity:
        return "ips", _node(entity[IP])
    if USER not in entity:
        return "clients", _node(entity[CLIENT_ID])
    user = _node(entity[USER])
    return "users", f"{user}/clients/{_node(entity[CLIENT_ID])}" if CLIENT_ID in entity else user


def entity_at(entity_type: str, name: str) -> Entity:
    """Return the entity of a node. Raises ValueError."""
    match entity_type, name.split("/"):
        case "ips", [ip]:
            return {IP: _name(ip)}
        case "clients", [client]:
            return {CLIENT_ID: _name(client)}
        case "users", [user]:
            return {USER: _name(user)}
        case "users", [user, "clients", client]:
            return {CLIENT_ID: _name(client), USER: _name(user)}
    raise ValueError(f"no quotas are kept at {entity_type}/{name}")


def _node(name: str | None) -> str:
    return DEFAULT_ENTITY if name is None else user_node(name)


def _name(node: str) -> str | None:
    return None if node == DEFAULT_ENTITY else unquote(node)
