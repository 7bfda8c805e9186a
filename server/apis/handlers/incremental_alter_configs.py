"""IncrementalAlterConfigs (key 44, KIP-339): set, delete, extend or shorten single settings.

Besides topics and brokers it changes the levels of loggers (KIP-412), which live as long as the process.
"""

from __future__ import annotations

from ....protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ...config.config_changes import alter_each
from ..ports import Configs
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext, request: IncrementalAlterConfigsRequest, *, configs: Configs
) -> IncrementalAlterConfigsResponse:
    """Edit the settings of each resource; each succeeds or fails on its own."""
    changer = configs.changer(validate_only=request.validate_only)
    responses = await alter_each(
        request.resources, lambda one: changer.edit(one, one.configs), AlterConfigsResourceResponse
    )
    return IncrementalAlterConfigsResponse(responses=responses)
