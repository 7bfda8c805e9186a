"""ListConfigResources (key 74, KIP-1142): names of what can be configured.

Version 0 was ListClientMetricsResources (KIP-714) and lists client metrics subscriptions only, of which there are none.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...protocol.errors import ErrorCode
from ...protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ..broker_state import BrokerState
from ..config_resources import ResourceType
from ..request_context import RequestContext

_LISTED = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


def handle(ctx: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """List the resources of the kinds asked for, of every kind if none is named."""
    kinds = request.resource_types if ctx.api_version >= 1 else [ResourceType.CLIENT_METRICS]
    if not set(kinds) <= set(_LISTED):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in _LISTED
            if not kinds or kind in kinds
            for name in _names(ctx.broker, kind)
        ]
    )


def _names(broker: BrokerState, kind: ResourceType) -> Iterator[str]:
    if kind is ResourceType.TOPIC:
        yield from broker.metadata.topic_names
    elif kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        yield from map(str, broker.metadata.brokers)
