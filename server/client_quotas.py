"""Quotas of users, client ids and addresses as the metadata tree has them, and which of them a filter means.

Kafka up to 3.9 keeps them under /config/users, /config/users/U/clients, /config/clients and /config/ips (KIP-546). This
broker shows them; it neither takes nor enforces any.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from urllib.parse import unquote

from ..protocol.errors import ErrorCode, KafkaError
from .metadata_store import MetadataStore, NoNodeError
from .znodes import DEFAULT_ENTITY, decode_config

USER, CLIENT_ID, IP = "user", "client-id", "ip"
QUOTAS = frozenset(
    {
        "producer_byte_rate",
        "consumer_byte_rate",
        "request_percentage",
        "controller_mutation_rate",
        "connection_creation_rate",
    }
)
"""Keys of quotas; a user's node also has credentials."""

Entity = Mapping[str, str | None]
"""Entity type -> name, None for whoever has no quota of their own."""


class MatchType(IntEnum):
    """How a filter's component compares names."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


@dataclass(frozen=True, slots=True)
class Component:
    """One entity type of a filter."""

    match_type: MatchType
    name: str | None

    def matches(self, name: str | None) -> bool:
        """Whether it means the entity of that name."""
        if self.match_type is MatchType.ANY:
            return True
        return name == (self.name if self.match_type is MatchType.EXACT else None)


class QuotaFilter:
    """Which entities are wanted: each component must match; a strict filter wants no other entity types."""

    def __init__(self, components: Sequence[tuple[str, int, str | None]], *, strict: bool) -> None:
        """`components` holds (entity type, match type, name). Raises KafkaError for what cannot be."""
        self._strict = strict
        self._components: dict[str, Component] = {}
        for entity_type, match_type, name in components:
            if entity_type in self._components:
                raise _invalid(f"Duplicate {entity_type} filter component entity type")
            if not entity_type:
                raise _invalid("Unexpected empty filter component entity type")
            if entity_type not in (USER, CLIENT_ID, IP):
                reason = f"Custom entity type '{entity_type}' not supported"
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, reason)
            self._components[entity_type] = Component(_match_type(match_type, name), name)
        if IP in self._components and len(self._components) > 1:
            reason = "IP filter component should not be used with user or clientId filter component."
            raise _invalid(f"Invalid entity filter component combination, {reason}")

    def matches(self, entity: Entity) -> bool:
        """Whether the entity is wanted."""
        components = self._components
        if not components.keys() <= entity.keys() or (self._strict and components.keys() != entity.keys()):
            return False
        return all(component.matches(entity[entity_type]) for entity_type, component in components.items())


async def stored_quotas(store: MetadataStore) -> AsyncIterator[tuple[Entity, dict[str, float]]]:
    """Every entity that has quotas, with them."""
    for user in await _children(store, "/config/users"):
        yield {USER: _name(user)}, await _quotas(store, f"/config/users/{user}")
        for client in await _children(store, f"/config/users/{user}/clients"):
            path = f"/config/users/{user}/clients/{client}"
            yield {USER: _name(user), CLIENT_ID: _name(client)}, await _quotas(store, path)
    for entity_type, parent in ((CLIENT_ID, "/config/clients"), (IP, "/config/ips")):
        for name in await _children(store, parent):
            yield {entity_type: _name(name)}, await _quotas(store, f"{parent}/{name}")


async def _children(store: MetadataStore, path: str) -> list[str]:
    try:
        return await store.children(path)
    except NoNodeError:
        return []


async def _quotas(store: MetadataStore, path: str) -> dict[str, float]:
    data, _ = await store.get(path)
    config = decode_config(data) if data else {}
    return {key: float(value) for key, value in config.items() if key in QUOTAS}


def _name(node: str) -> str | None:
    """A node's name, which is percent-encoded in the tree (Kafka's Sanitizer)."""
    return None if node == DEFAULT_ENTITY else unquote(node)


def _match_type(number: int, name: str | None) -> MatchType:
    try:
        match_type = MatchType(number)
    except ValueError:
        raise _invalid(f"Unexpected match type: {number}") from None
    if (name is not None) is not (match_type is MatchType.EXACT):
        what = "not specify" if name is not None else "specify"
        raise _invalid(f"Match type {match_type.name} must {what} a name")
    return match_type


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)
