"""DescribeClientQuotas (key 48, KIP-546): the quotas of users, client ids and addresses that a filter selects.

Version 1 is flexible.
"""

from __future__ import annotations

from ....protocol.errors import KafkaError
from ....protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from ...quotas.entities import QuotaFilter
from ...quotas.quota_settings import QuotaSettings
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext, request: DescribeClientQuotasRequest, *, quota_settings: QuotaSettings
) -> DescribeClientQuotasResponse:
    """INVALID_REQUEST or UNSUPPORTED_VERSION for a filter that cannot be; the entries are null then, as Kafka's are."""
    components = [(one.entity_type, one.match_type, one.match) for one in request.components]
    try:
        wanted = QuotaFilter(components, strict=request.strict)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    return DescribeClientQuotasResponse(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                values=[ValueData(key=key, value=value) for key, value in limits.items()],
            )
            async for entity, limits in quota_settings.described()
            if limits and wanted.matches(entity)
        ]
    )
