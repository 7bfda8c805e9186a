"""Quotas in the metadata tree, where Kafka up to 3.9 has them (KIP-546).

They are under /config/users, /config/users/U/clients, /config/clients and /config/ips, names percent-encoded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from urllib.parse import unquote

from ...protocol.room_logger import room_logger
from ..metadata.config_store import ConfigStore, stored_config
from ..metadata.metadata_store import MetadataStore, NoNodeError
from ..metadata.znodes import DEFAULT_ENTITY, UnreadableNodeError, user_node
from ..runtime.turns import Pace
from .entities import ALL_OF_A_CLIENT, CLIENT_ID, IP, QUOTAS, USER, Entity, quota_text

logger = room_logger("config")


async def stored_quotas(store: MetadataStore) -> AsyncIterator[tuple[Entity, dict[str, float]]]:
    """Every entity that has a node with its quotas, perhaps none; others are served in between."""
    pace = Pace()
    async for entity, path in _entities(store):
        yield entity, await _quotas(store, path)
        await pace.step()


async def _entities(store: MetadataStore) -> AsyncIterator[tuple[Entity, str]]:
    for user in await _children(store, "/config/users"):
        yield {USER: _name(user)}, f"/config/users/{user}"
        for client in await _children(store, f"/config/users/{user}/clients"):
            yield {CLIENT_ID: _name(client), USER: _name(user)}, f"/config/users/{user}/clients/{client}"
    for entity_type, parent in ((CLIENT_ID, "/config/clients"), (IP, "/config/ips")):
        for name in await _children(store, parent):
            yield {entity_type: _name(name)}, f"{parent}/{name}"


async def quotas_at(config_store: ConfigStore, entity_type: str, name: str) -> tuple[Entity, dict[str, float]]:
    """The entity whose node, of this type and with this path below it, is named by a notice, and its quotas.

    Raises ValueError for what is no entity's place.
    """
    return _entity_at(entity_type, name), _only_quotas(name, await config_store.client_config(entity_type, name))


async def alter_stored_quotas(
    config_store: ConfigStore, entity: Entity, changes: Mapping[str, float | None]
) -> dict[str, float]:
    """Set these checked quotas of an entity, remove those that are None, and return all that it has then.

    Whatever else its node holds stays. Raises StoreUnavailableError.
    """
    entity_type, name = _place(entity)
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


async def _children(store: MetadataStore, path: str) -> list[str]:
    try:
        return await store.children(path)
    except NoNodeError:
        return []


async def _quotas(store: MetadataStore, path: str) -> dict[str, float]:
    try:
        data, _ = await store.get(path)
        return _only_quotas(path, stored_config(path, data))
    except NoNodeError:  # gone since it was listed
        return {}
    except UnreadableNodeError as error:
        logger.error("quotas count as none until they can be read: %s", error)
        return {}


def _only_quotas(where: str, config: Mapping[str, str]) -> dict[str, float]:
    quotas = {}
    for key in QUOTAS:
        try:
            if key in config:
                quotas[key] = float(config[key])
        except ValueError:
            logger.error("The stored quota %s of %s is no number: %s", key, where, config[key])
    first = ALL_OF_A_CLIENT if all(key in quotas for key in ALL_OF_A_CLIENT) else ()
    return {key: quotas[key] for key in (*first, *quotas)}


def _place(entity: Entity) -> tuple[str, str]:
    """The kind of an entity's node, and its path below that."""
    if IP in entity:
        return "ips", _node(entity[IP])
    if USER not in entity:
        return "clients", _node(entity[CLIENT_ID])
    user = _node(entity[USER])
    return "users", f"{user}/clients/{_node(entity[CLIENT_ID])}" if CLIENT_ID in entity else user


def _entity_at(entity_type: str, name: str) -> Entity:
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
