"""The entities of quotas, the quota keys of each, and the filters of DescribeClientQuotas (KIP-546)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

from ...protocol.errors import ErrorCode, KafkaError

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

Entity = Mapping[str, str | None]
"""Entity type -> name, None for the default entity."""

_INT_MAX, _LONG_MAX = 2**31 - 1, 2**63 - 1
_CLIENT_QUOTAS: Mapping[str, int | None] = MappingProxyType(
    {
        CONSUMER_BYTE_RATE: _LONG_MAX,
        CONTROLLER_MUTATION_RATE: None,
        REQUEST_PERCENTAGE: None,
        PRODUCER_BYTE_RATE: _LONG_MAX,
    }
)
_IP_QUOTAS: Mapping[str, int | None] = MappingProxyType({CONNECTION_CREATION_RATE: _INT_MAX})
"""Key -> the largest whole number it may be, None where fractions are allowed (Kafka's QuotaConfig)."""
QUOTAS = (*_CLIENT_QUOTAS, *_IP_QUOTAS)
"""Keys of quotas, in the order of Kafka's responses for up to three keys; a user's node also has credentials."""
ALL_OF_A_CLIENT = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE)
"""The four keys of a client in the order of Kafka's responses, whose hash table is larger for four keys."""
_WHOLE = 1e-6
"""A value this close to a whole number is one."""


def entity_of(parts: Sequence[tuple[str, str | None]]) -> Entity:
    """Return the entity of (type, name) pairs. Raises KafkaError INVALID_REQUEST for an invalid combination."""
    if not parts:
        raise invalid("Invalid empty client quota entity")
    entity: dict[str, str | None] = {}
    for entity_type, name in parts:
        if entity_type in entity:
            raise invalid(f"Invalid client quota entity, duplicate entity entry {entity_type}")
        if entity_type not in (USER, CLIENT_ID, IP):
            raise invalid(f"Unhandled client quota entity type: {entity_type}")
        if name == "":
            raise invalid(f"Empty {entity_type} not supported")
        entity[entity_type] = name
    if IP in entity and len(entity) > 1:
        raise invalid("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
    return entity


def check_quota(entity: Entity, key: str, value: float) -> None:
    """Raise KafkaError INVALID_REQUEST unless the entity may have this quota."""
    quotas = _IP_QUOTAS if IP in entity else _CLIENT_QUOTAS
    if key not in quotas:
        raise invalid(f"Invalid configuration key {key}")
    if not value > 0:
        raise invalid(f"Quota {key} must be greater than 0")
    largest = quotas[key]
    if largest is None:
        return
    if value > largest:
        kind = "an INT" if largest == _INT_MAX else "a LONG"
        raise invalid(f"Proposed value for {key} is too large for {kind}.")
    if math.fmod(value, 1.0) > _WHOLE:
        raise invalid(f"{key} cannot be a fractional value.")


def quota_text(entity: Entity, key: str, value: float) -> str:
    """Return the stored text of a checked value, a whole number for keys that require one."""
    whole = (_IP_QUOTAS if IP in entity else _CLIENT_QUOTAS)[key] is not None
    return str(int(value + _WHOLE)) if whole else str(value)


def invalid(reason: str) -> KafkaError:
    """Return an INVALID_REQUEST error."""
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)


class MatchType(IntEnum):
    """The way in which a filter component compares names."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


@dataclass(frozen=True, slots=True)
class FilterComponent:
    """One entity type of a filter."""

    match_type: MatchType
    name: str | None

    def matches(self, name: str | None) -> bool:
        """Return whether the component matches an entity name."""
        if self.match_type is MatchType.ANY:
            return True
        return name == (self.name if self.match_type is MatchType.EXACT else None)


class QuotaFilter:
    """A filter of entities: each component must match; a strict filter excludes entities with other types."""

    def __init__(self, components: Sequence[tuple[str, int, str | None]], *, strict: bool) -> None:
        """`components` holds (entity type, match type, name). Raises KafkaError for an invalid combination."""
        self._strict = strict
        self._components: dict[str, FilterComponent] = {}
        for entity_type, match_type, name in components:
            if entity_type in self._components:
                raise invalid(f"Duplicate {entity_type} filter component entity type")
            if not entity_type:
                raise invalid("Unexpected empty filter component entity type")
            if entity_type not in (USER, CLIENT_ID, IP):
                reason = f"Custom entity type '{entity_type}' not supported"
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, reason)
            self._components[entity_type] = FilterComponent(_match_type(match_type, name), name)
        if IP in self._components and len(self._components) > 1:
            reason = "IP filter component should not be used with user or clientId filter component."
            raise invalid(f"Invalid entity filter component combination, {reason}")

    def matches(self, entity: Entity) -> bool:
        """Return whether the filter matches an entity."""
        components = self._components
        if not components.keys() <= entity.keys() or (self._strict and components.keys() != entity.keys()):
            return False
        return all(component.matches(entity[entity_type]) for entity_type, component in components.items())


def _match_type(number: int, name: str | None) -> MatchType:
    try:
        match_type = MatchType(number)
    except ValueError:
        raise invalid(f"Unexpected match type: {number}") from None
    if (name is not None) is not (match_type is MatchType.EXACT):
        what = "not specify" if name is not None else "specify"
        raise invalid(f"Match type {match_type.name} must {what} a name")
    return match_type
