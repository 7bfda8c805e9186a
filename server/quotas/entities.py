"""Whom a quota concerns, which quotas there are for whom, and what an alteration may say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ...protocol.errors import ErrorCode, KafkaError

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

Entity = Mapping[str, str | None]
"""Entity type -> name, None for whoever has no quota of their own."""

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
"""Keys of quotas, in the order in which Kafka's answers have up to three; a user's node also has credentials."""
ALL_OF_A_CLIENT = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE)
"""In the order in which they have all four, for which a hash table there is larger."""
_WHOLE = 1e-6
"""A value this close to a whole number is one."""


def entity_of(parts: Sequence[tuple[str, str | None]]) -> Entity:
    """The entity that (type, name) pairs describe. Raises KafkaError INVALID_REQUEST for what cannot be one."""
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
    """A checked value as it is stored: whole where it has to be."""
    whole = (_IP_QUOTAS if IP in entity else _CLIENT_QUOTAS)[key] is not None
    return str(int(value + _WHOLE)) if whole else str(value)


def invalid(reason: str) -> KafkaError:
    """What a request is refused with."""
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)
