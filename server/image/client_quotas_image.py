"""Quotas of a KRaft cluster (KIP-546), and their changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ...protocol.metadata_records import ClientQuotaRecord, EntityData
from ..runtime.loop_sharing import CountBudget
from .map_changes import with_changes

ClientQuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""The (type, name) pairs of an entity, sorted by type. None is the name of the default entity."""


@dataclass(frozen=True, slots=True)
class ClientQuotasImage:
    """The quotas of each entity that has any."""

    entities: Mapping[ClientQuotaEntity, Mapping[str, float]] = field(default_factory=dict)

    def write(self) -> Iterator[tuple[Any, int]]:
        """Yield the records of all quotas, with their versions."""
        for entity, quotas in self.entities.items():
            parts = [EntityData(entity_type=entity_type, entity_name=name) for entity_type, name in entity]
            for key, value in quotas.items():
                yield ClientQuotaRecord(entity=parts, key=key, value=value, remove=False), 0


class ClientQuotasDelta:
    """The changes of quotas, None for a removed one. `image` has the quotas before them."""

    def __init__(self, image: ClientQuotasImage) -> None:
        self.image = image
        self.changes: dict[ClientQuotaEntity, dict[str, float | None]] = {}

    def replay(self, record: ClientQuotaRecord) -> None:
        """Set or remove a quota."""
        # By type alone: an entity has each type once, and a name may be None.
        parts = ((part.entity_type, part.entity_name) for part in record.entity)
        entity = tuple(sorted(parts, key=lambda part: part[0]))
        self.changes.setdefault(entity, {})[record.key] = None if record.remove else record.value

    def apply(self) -> ClientQuotasImage:
        """Return the quotas after the changes."""
        entities = dict(self.image.entities)
        for entity, changes in self.changes.items():
            quotas = with_changes(entities.get(entity, {}), changes)
            if quotas:
                entities[entity] = quotas
            else:
                entities.pop(entity, None)
        return ClientQuotasImage(entities)

    @classmethod
    async def between(
        cls, before: ClientQuotasImage, after: ClientQuotasImage, budget: CountBudget
    ) -> ClientQuotasDelta | None:
        """Return the changes that make `after` of `before`; None without any."""
        delta = cls(before)
        for entity, quotas in after.entities.items():
            known = before.entities.get(entity, {})
            if known != quotas:
                changes: dict[str, float | None] = {k: v for k, v in quotas.items() if known.get(k) != v}
                delta.changes[entity] = changes | dict.fromkeys(known.keys() - quotas.keys())
            await budget.step()
        for entity, quotas in before.entities.items():
            if entity not in after.entities:
                delta.changes[entity] = dict.fromkeys(quotas)
            await budget.step()
        return delta if delta.changes else None
