"""AlterConfigs (key 33): replaces all settings of topics and brokers. Omitted settings return to their defaults.

Superseded by IncrementalAlterConfigs (KIP-339): two clients that read, change and write undo each other's changes.
"""

from __future__ import annotations

from ....protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ...config.config_admin_manager import ConfigAdminManager, alter_each
from ...config.config_repository import ConfigRepository
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext, request: AlterConfigsRequest, *, config_repository: ConfigRepository
) -> AlterConfigsResponse:
    """Replace the settings of each resource; each succeeds or fails on its own."""
    changer = ConfigAdminManager(config_repository, validate_only=request.validate_only)
    responses = await alter_each(
        request.resources, lambda one: changer.replace(one, one.configs), AlterConfigsResourceResponse
    )
    return AlterConfigsResponse(responses=responses)
