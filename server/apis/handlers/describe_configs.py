"""DescribeConfigs (key 32): every setting of topics, brokers, loggers, client metrics and groups.

Version 0 says of a value whether it is a default; 1 (KIP-226) says where it comes from and, if asked, what would hold
without it; 3 (KIP-569) adds types and, if asked, documentation. Passwords are never told, nor values of unknown keys.
"""

from __future__ import annotations

from ....protocol.config_resources import ConfigSource
from ....protocol.errors import ErrorCode
from ....protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ...runtime.turns import Steps
from ..ports import Configs
from ..request_context import RequestContext

MOST_ENTRIES = 200_000
"""Settings in one answer: those of five thousand topics. Synonyms and sentences count as settings, too."""
WITH_SYNONYMS, WITH_DOCUMENTATION = 4, 10
"""How many settings more one with them counts as."""
TOO_MANY = f"One answer holds {MOST_ENTRIES} settings at most."


def handle(ctx: RequestContext, request: DescribeConfigsRequest, *, configs: Configs) -> Steps[DescribeConfigsResponse]:
    """Describe each resource, once; one that cannot be described carries an error of its own."""
    describer = configs.describer(
        with_synonyms=request.include_synonyms, with_documentation=request.include_documentation
    )
    wanted = dict.fromkeys(
        (resource.resource_type, resource.resource_name, tuple(resource.configuration_keys or ()))
        for resource in request.resources
    )
    weight = 1 + WITH_SYNONYMS * request.include_synonyms + WITH_DOCUMENTATION * request.include_documentation
    results: list[DescribeConfigsResult] = []
    left = MOST_ENTRIES
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
