"""IncrementalAlterConfigs (key 44) in a KRaft cluster: the controller changes all settings but levels of loggers."""

from __future__ import annotations

from ....protocol.config_resources import ConfigResourceType
from ....protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ...config.config_repository import ConfigRepository
from ...controller.forwarding_manager import ForwardingManager
from ..request_context import RequestContext
from . import forward, incremental_alter_configs


async def handle(
    ctx: RequestContext,
    request: IncrementalAlterConfigsRequest,
    *,
    config_repository: ConfigRepository,
    forwarding_manager: ForwardingManager,
) -> IncrementalAlterConfigsResponse:
    """Change the levels of loggers of this broker, and forward the other resources. Raises KafkaError."""
    loggers = [one for one in request.resources if one.resource_type == ConfigResourceType.BROKER_LOGGER]
    others = [one for one in request.resources if one.resource_type != ConfigResourceType.BROKER_LOGGER]
    responses = []
    if loggers:
        own = IncrementalAlterConfigsRequest(resources=loggers, validate_only=request.validate_only)
        responses += (await incremental_alter_configs.handle(ctx, own, config_repository=config_repository)).responses
    if others or not loggers:
        rest = IncrementalAlterConfigsRequest(resources=others, validate_only=request.validate_only)
        responses += (await forward.handle(ctx, rest, forwarding_manager=forwarding_manager)).responses
    return IncrementalAlterConfigsResponse(responses=responses)
