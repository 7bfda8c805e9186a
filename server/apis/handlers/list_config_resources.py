"""ListConfigResources (key 74, KIP-1142): names of resources with configurations.

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
from ...config.config_repository import ConfigRepository
from ...metadata.metadata_cache import MetadataCache
from ..request_context import RequestContext

_LISTED = (
    ConfigResourceType.TOPIC,
    ConfigResourceType.BROKER,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.GROUP,
)


def handle(
    ctx: RequestContext,
    request: ListConfigResourcesRequest,
    *,
    config_repository: ConfigRepository,
    metadata_cache: MetadataCache,
) -> ListConfigResourcesResponse:
    """List the resources of the requested types, or of all types if the request names none."""
    kinds = request.resource_types if ctx.api_version >= 1 else [ConfigResourceType.CLIENT_METRICS]
    if not set(kinds) <= set(_LISTED):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in _LISTED
            if not kinds or kind in kinds
            for name in _names(kind, config_repository=config_repository, metadata_cache=metadata_cache)
        ]
    )


def _names(
    kind: ConfigResourceType, *, config_repository: ConfigRepository, metadata_cache: MetadataCache
) -> Iterator[str]:
    if kind is ConfigResourceType.TOPIC:
        yield from metadata_cache.topic_names
    elif kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        yield from map(str, metadata_cache.brokers)
    else:
        yield from config_repository.dynamic_config.configured(kind)
