"""IncrementalAlterConfigs (key 44, KIP-339): set, delete, extend or shorten single settings.

Besides topics and brokers it changes the levels of loggers (KIP-412), which live as long as the process.
"""

from __future__ import annotations

from ....protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ...config.config_changes import ConfigChanger, alter_each
from ...config.config_repository import ConfigRepository
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext, request: IncrementalAlterConfigsRequest, *, configs: ConfigRepository
) -> IncrementalAlterConfigsResponse:
    """Edit the settings of each resource; each succeeds or fails on its own."""
    changer = ConfigChanger(configs, validate_only=request.validate_only)
    responses = await alter_each(
        request.resources, lambda one: changer.edit(one, one.configs), AlterConfigsResourceResponse
    )
    return IncrementalAlterConfigsResponse(responses=responses)
