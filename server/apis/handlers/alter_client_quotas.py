"""AlterClientQuotas (key 49, KIP-546): sets and removes quotas of users, client ids and addresses.

Version 1 is flexible. Each entity succeeds or fails on its own, with all of its quotas. A change applies from the next
request on.
"""

from __future__ import annotations

from collections import Counter

from ....protocol.errors import KafkaError
from ....protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    ResponseEntryData,
)
from ...quotas.entities import Entity, check_quota, entity_of, invalid
from ...quotas.quota_settings import QuotaSettings
from ...runtime.loop_sharing import CountBudget
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext,
    request: AlterClientQuotasRequest,
    *,
    quota_settings: QuotaSettings,
) -> AlterClientQuotasResponse:
    """Change each entity independently; an entity that is named twice is not changed."""
    response = AlterClientQuotasResponse(entries=[])
    named = [_key(entry) for entry in request.entries]
    times_named = Counter(named)
    budget = CountBudget()
    for entry, key in zip(request.entries, named, strict=True):
        await budget.step()
        in_order = sorted(entry.entity, key=lambda part: part.entity_type)
        answer = ResponseEntryData(error_message=None, entity=in_order)
        try:
            if times_named[key] > 1:
                names = ", ".join(f"{kind}={name}" for kind, name in key)
                raise invalid(f"Ignoring duplicate entity ClientQuotaEntity(entries={{{names}}})")
            await _alter(entry, validate_only=request.validate_only, quota_settings=quota_settings)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
        response.entries.append(answer)
    return response


def _key(entry: EntryData) -> tuple[tuple[str, str | None], ...]:
    return tuple(sorted(((part.entity_type, part.entity_name) for part in entry.entity), key=str))


async def _alter(entry: EntryData, *, validate_only: bool, quota_settings: QuotaSettings) -> None:
    """Change one entity's quotas. Raises KafkaError."""
    entity = entity_of([(part.entity_type, part.entity_name) for part in entry.entity])
    await quota_settings.check_host(entity)
    changes = _changes(entity, entry)
    if not validate_only:
        await quota_settings.alter(entity, changes)


def _changes(entity: Entity, entry: EntryData) -> dict[str, float | None]:
    changes: dict[str, float | None] = {}
    for op in entry.ops:
        if op.key in changes:
            names = ", ".join(f"{kind}={name}" for kind, name in entity.items())
            where = f"ClientQuotaEntity(entries={{{names}}})"
            raise invalid(f"Duplicate quota key {op.key} not updating quota for this entity {where}")
        if not op.remove:
            check_quota(entity, op.key, op.value)
        changes[op.key] = None if op.remove else op.value
    return changes
