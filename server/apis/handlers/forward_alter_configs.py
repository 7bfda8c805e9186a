"""AlterConfigs (key 33) and IncrementalAlterConfigs (key 44) in a KRaft cluster (Kafka: ConfigAdminManager.preprocess).

The controller changes all settings but levels of loggers, and checks the ACLs of the settings that it changes. This
broker checks the values of broker settings first, because the controller does not validate them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ....protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from ....protocol.config_resources import ConfigResourceType
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages import alter_configs, incremental_alter_configs
from ...config.config_admin_manager import ConfigAdminManager, alter_each
from ...config.config_repository import ConfigRepository
from ...controller.forwarding_manager import ForwardingManager
from ..request_context import RequestContext
from . import forward


async def handle(
    ctx: RequestContext,
    request: alter_configs.AlterConfigsRequest | incremental_alter_configs.IncrementalAlterConfigsRequest,
    *,
    config_repository: ConfigRepository,
    forwarding_manager: ForwardingManager,
) -> Any:
    """Change the levels of loggers of this broker, check the settings of brokers, and forward the other resources.

    The response has the resources in the order of the request; None after the connection was closed (`forward`). Raises
    KafkaError.
    """
    if isinstance(request, incremental_alter_configs.IncrementalAlterConfigsRequest):
        response: Any = incremental_alter_configs.IncrementalAlterConfigsResponse()
        answer: Callable[..., Any] = incremental_alter_configs.AlterConfigsResourceResponse
        change_levels: Callable[..., Awaitable[None]] = ConfigAdminManager(
            config_repository, validate_only=request.validate_only
        ).edit
        check: Callable[..., Awaitable[None]] = ConfigAdminManager(config_repository, validate_only=True).edit
    else:
        response, answer = alter_configs.AlterConfigsResponse(), alter_configs.AlterConfigsResourceResponse
        # Levels of loggers cannot be replaced as a whole: `replace` refuses them.
        change_levels = check = ConfigAdminManager(config_repository, validate_only=True).replace
    is_authorized = ctx.is_authorized(AclOperation.ALTER_CONFIGS, AclResourceType.CLUSTER, CLUSTER_NAME)

    async def preprocess(resource: Any) -> None:
        if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
            if not is_authorized:
                raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            await change_levels(resource, resource.configs)
        elif resource.resource_type == ConfigResourceType.BROKER and is_authorized:
            # Without the ACL the controller refuses the change, and no file of this broker is examined.
            await check(resource, resource.configs)

    resources: Sequence[Any] = request.resources
    response.responses = await alter_each(resources, preprocess, answer)
    remaining = {
        index: resource
        for index, (resource, one) in enumerate(zip(resources, response.responses, strict=True))
        if not one.error_code and resource.resource_type != ConfigResourceType.BROKER_LOGGER
    }
    if remaining:
        rest: Any = request.__class__(resources=list(remaining.values()), validate_only=request.validate_only)
        forwarded = await forward.handle(ctx, rest, forwarding_manager=forwarding_manager)
        if forwarded is None:
            return None
        response.throttle_time_ms = forwarded.throttle_time_ms
        changed = {(one.resource_type, one.resource_name): one for one in forwarded.responses}
        for index, resource in remaining.items():
            named = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
            response.responses[index] = changed.get((resource.resource_type, resource.resource_name)) or answer(
                **named, error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message="The controller returned no result."
            )
    return response
