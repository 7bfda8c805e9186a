"""IncrementalAlterConfigs (key 44, KIP-339): sets, deletes, extends or shortens single settings.

It also changes the levels of broker loggers (KIP-412), which are lost when the process ends.
"""

from __future__ import annotations

from ....protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ...config.config_admin_manager import ConfigAdminManager, alter_each
from ...config.config_repository import ConfigRepository
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext, request: IncrementalAlterConfigsRequest, *, config_repository: ConfigRepository
) -> IncrementalAlterConfigsResponse:
    """Edit the settings of each resource; each succeeds or fails on its own."""
    changer = ConfigAdminManager(config_repository, validate_only=request.validate_only)
    responses = await alter_each(
        request.resources, lambda one: changer.edit(one, one.configs), AlterConfigsResourceResponse
    )
    return IncrementalAlterConfigsResponse(responses=responses)
