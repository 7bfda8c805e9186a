"""DescribeClientQuotas (key 48, KIP-546): the quotas of users, client ids and addresses that a filter selects.

Version 1 is the same in flexible form.
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
from ...metadata.metadata_store import MetadataStore
from ...quotas.filters import QuotaFilter
from ...quotas.stored_quotas import stored_quotas
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext, request: DescribeClientQuotasRequest, *, store: MetadataStore
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
                values=[ValueData(key=key, value=value) for key, value in quotas.items()],
            )
            async for entity, quotas in stored_quotas(store)
            if quotas and wanted.matches(entity)
        ]
    )
