"""Quotas of users, clients and addresses (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ...protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from ..client import Client
from .controller_link import ControllerLink
from .outcomes import outcome, raise_error, raise_first

QuotaEntity = Mapping[str, str | None]
"""`user`, `client-id` or `ip` -> a name; None stands for whoever has no quota of their own."""


class QuotaDescription(NamedTuple):
    """Whom quotas concern, and their values by key, such as `producer_byte_rate` (bytes a second)."""

    entity: QuotaEntity
    values: dict[str, float]


class QuotaAdmin:
    """What `Admin` does with quotas."""

    def __init__(self, client: Client, controller: ControllerLink) -> None:
        self._client = client
        self._controller = controller

    async def describe_quotas(self) -> list[QuotaDescription]:
        """All quotas there are. Raises KafkaError."""
        response = await self._client.ask(None, DescribeClientQuotasRequest(components=[], strict=False))
        raise_error(response.error_code, response.error_message)
        return [
            QuotaDescription(
                {e.entity_type: e.entity_name for e in entry.entity}, {v.key: v.value for v in entry.values}
            )
            for entry in response.entries or ()
        ]

    async def alter_quotas(self, entity: QuotaEntity, changes: Mapping[str, float | None]) -> None:
        """Set quotas of one entity, or remove those whose value is None. Raises KafkaError."""
        entry = EntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
            ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()],
        )
        response = await self._controller.ask(AlterClientQuotasRequest(entries=[entry]), "entries")
        raise_first({index: outcome(e.error_code, e.error_message) for index, e in enumerate(response.entries)})
