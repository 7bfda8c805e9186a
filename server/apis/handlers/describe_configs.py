"""DescribeConfigs (key 32): all settings of topics, brokers, loggers, client metrics and groups.

Version 0 marks defaults; 1 (KIP-226) has the source of a value and, on request, its synonyms; 3 (KIP-569) adds types
and, on request, documentation. Passwords and values of unknown keys are never returned.
"""

from __future__ import annotations

from ....protocol.config_resources import ConfigSource
from ....protocol.errors import ErrorCode
from ....protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ...config.config_helper import ConfigHelper
from ...config.config_repository import ConfigRepository
from ...runtime.loop_sharing import SlicedWork, Steps
from ..request_context import RequestContext

MAX_ENTRIES = 200_000
"""Settings in one response: the settings of five thousand topics. Synonyms and documentation count as settings, too."""
WITH_SYNONYMS, WITH_DOCUMENTATION = 4, 10
"""The number of further settings that a setting with synonyms, or with documentation, counts as."""
TOO_MANY = f"One answer holds {MAX_ENTRIES} settings at most."


async def handle(
    ctx: RequestContext,
    request: DescribeConfigsRequest,
    *,
    config_repository: ConfigRepository,
    sliced_work: SlicedWork,
) -> DescribeConfigsResponse:
    """Describe each resource once. A resource that cannot be described has an error."""
    return await sliced_work.complete(_build_response(ctx, request, config_repository))


def _build_response(
    ctx: RequestContext, request: DescribeConfigsRequest, config_repository: ConfigRepository
) -> Steps[DescribeConfigsResponse]:
    describer = ConfigHelper(
        config_repository, with_synonyms=request.include_synonyms, with_documentation=request.include_documentation
    )
    wanted = dict.fromkeys(
        (resource.resource_type, resource.resource_name, tuple(resource.configuration_keys or ()))
        for resource in request.resources
    )
    weight = 1 + WITH_SYNONYMS * request.include_synonyms + WITH_DOCUMENTATION * request.include_documentation
    results: list[DescribeConfigsResult] = []
    left = MAX_ENTRIES
    for resource_type, name, keys in wanted:
        result = describer.describe(resource_type, name, keys)
        if len(result.configs) * weight > left:
            result.error_code = ErrorCode.POLICY_VIOLATION
            result.error_message = TOO_MANY
            result.configs = []
        left -= len(result.configs) * weight
        results.append(result)
        yield
    return _response(ctx, results)


def _response(ctx: RequestContext, results: list[DescribeConfigsResult]) -> DescribeConfigsResponse:
    if ctx.api_version == 0:
        for result in results:
            for entry in result.configs:
                entry.is_default = entry.config_source == ConfigSource.DEFAULT
    return DescribeConfigsResponse(results=results)
