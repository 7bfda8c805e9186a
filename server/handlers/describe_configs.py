"""DescribeConfigs (key 32): every setting of topics, brokers, loggers, client metrics and groups.

Version 0 says of a value whether it is a default; 1 (KIP-226) says where it comes from and, if asked, what would hold
without it; 3 (KIP-569) adds types and, if asked, documentation. Passwords are never told, nor values of unknown keys.
"""

from __future__ import annotations

from ...protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ..config_description import ConfigDescriber
from ..config_resources import ConfigSource
from ..request_context import RequestContext


def handle(ctx: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe each resource; one that cannot be described carries an error of its own."""
    describer = ConfigDescriber(
        ctx.broker,
        with_synonyms=request.include_synonyms,
        with_documentation=request.include_documentation,
    )
    results = [
        describer.describe(resource.resource_type, resource.resource_name, resource.configuration_keys)
        for resource in request.resources
    ]
    if ctx.api_version == 0:
        for result in results:
            for entry in result.configs:
                entry.is_default = entry.config_source == ConfigSource.DEFAULT
    return DescribeConfigsResponse(results=results)
