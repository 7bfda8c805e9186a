"""ListConfigResources (key 74, KIP-1142): names of what can be configured.

Version 0 was ListClientMetricsResources (KIP-714) and lists client metrics subscriptions only.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....protocol.config_resources import ConfigResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ..ports import ClusterMetadata, Configs
from ..request_context import RequestContext

_LISTED = (
    ConfigResourceType.TOPIC,
    ConfigResourceType.BROKER,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.GROUP,
)


def handle(
    ctx: RequestContext, request: ListConfigResourcesRequest, *, configs: Configs, metadata: ClusterMetadata
) -> ListConfigResourcesResponse:
    """List the resources of the kinds asked for, of every kind if none is named."""
    kinds = request.resource_types if ctx.api_version >= 1 else [ConfigResourceType.CLIENT_METRICS]
    if not set(kinds) <= set(_LISTED):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in _LISTED
            if not kinds or kind in kinds
            for name in _names(kind, configs=configs, metadata=metadata)
        ]
    )


def _names(kind: ConfigResourceType, *, configs: Configs, metadata: ClusterMetadata) -> Iterator[str]:
    if kind is ConfigResourceType.TOPIC:
        yield from metadata.topic_names
    elif kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        yield from map(str, metadata.brokers)
    else:
        yield from configs.configured(kind)
