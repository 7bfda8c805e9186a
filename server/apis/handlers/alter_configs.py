"""AlterConfigs (key 33): give topics and brokers a whole new set of settings; what is not named falls back.

Superseded by IncrementalAlterConfigs (KIP-339), as two clients that read, change and write undo each other's work.
"""

from __future__ import annotations

from ....protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ...config.config_changes import alter_each
from ..ports import Configs
from ..request_context import RequestContext


async def handle(ctx: RequestContext, request: AlterConfigsRequest, *, configs: Configs) -> AlterConfigsResponse:
    """Replace the settings of each resource; each succeeds or fails on its own."""
    changer = configs.changer(validate_only=request.validate_only)
    responses = await alter_each(
        request.resources, lambda one: changer.replace(one, one.configs), AlterConfigsResourceResponse
    )
    return AlterConfigsResponse(responses=responses)
