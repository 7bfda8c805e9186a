"""Which entities a description of quotas is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from ...protocol.errors import ErrorCode, KafkaError
from .entities import CLIENT_ID, IP, USER, Entity, invalid


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
                raise invalid(f"Duplicate {entity_type} filter component entity type")
            if not entity_type:
                raise invalid("Unexpected empty filter component entity type")
            if entity_type not in (USER, CLIENT_ID, IP):
                reason = f"Custom entity type '{entity_type}' not supported"
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, reason)
            self._components[entity_type] = Component(_match_type(match_type, name), name)
        if IP in self._components and len(self._components) > 1:
            reason = "IP filter component should not be used with user or clientId filter component."
            raise invalid(f"Invalid entity filter component combination, {reason}")

    def matches(self, entity: Entity) -> bool:
        """Whether the entity is wanted."""
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
