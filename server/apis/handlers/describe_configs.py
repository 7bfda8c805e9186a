"""DescribeConfigs (key 32): every setting of topics, brokers, loggers, client metrics and groups.

Version 0 says of a value whether it is a default; 1 (KIP-226) says where it comes from and, if asked, what would hold
without it; 3 (KIP-569) adds types and, if asked, documentation. Passwords are never told, nor values of unknown keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence

from ....protocol.config_resources import ConfigSource
from ....protocol.errors import ErrorCode
from ....protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ...config.config_description import ConfigDescriber
from ...config.config_repository import ConfigRepository
from ..request_context import RequestContext

MOST_ENTRIES = 500_000
"""Settings in one answer: those of fourteen thousand topics."""
RESOURCES_PER_TURN = 50
"""So many resources are described before other clients get their turn."""


Wanted = tuple[int, str, tuple[str, ...]]


def handle(
    ctx: RequestContext, request: DescribeConfigsRequest, *, configs: ConfigRepository
) -> DescribeConfigsResponse | Coroutine[None, None, DescribeConfigsResponse]:
    """Describe each resource, once; one that cannot be described carries an error of its own."""
    describer = ConfigDescriber(
        configs,
        with_synonyms=request.include_synonyms,
        with_documentation=request.include_documentation,
    )
    wanted = list(
        dict.fromkeys(
            (resource.resource_type, resource.resource_name, tuple(resource.configuration_keys or ()))
            for resource in request.resources
        )
    )
    results: list[DescribeConfigsResult] = []
    if len(wanted) > RESOURCES_PER_TURN:
        return _describe_in_turns(ctx, describer, wanted, results)
    _describe(describer, wanted, results, 0)
    return _response(ctx, results)


async def _describe_in_turns(
    ctx: RequestContext, describer: ConfigDescriber, wanted: Sequence[Wanted], results: list[DescribeConfigsResult]
) -> DescribeConfigsResponse:
    entries = 0
    for start in range(0, len(wanted), RESOURCES_PER_TURN):
        entries = _describe(describer, wanted[start : start + RESOURCES_PER_TURN], results, entries)
        await asyncio.sleep(0)
    return _response(ctx, results)


def _describe(
    describer: ConfigDescriber, wanted: Sequence[Wanted], results: list[DescribeConfigsResult], entries: int
) -> int:
    """Append the results; returns how many settings there are now, having been `entries`."""
    for resource_type, name, keys in wanted:
        result = describer.describe(resource_type, name, keys)
        if entries + len(result.configs) > MOST_ENTRIES:
            result.error_code = ErrorCode.POLICY_VIOLATION
            result.error_message = f"One answer holds {MOST_ENTRIES} settings at most."
            result.configs = []
        entries += len(result.configs)
        results.append(result)
    return entries


def _response(ctx: RequestContext, results: list[DescribeConfigsResult]) -> DescribeConfigsResponse:
    if ctx.api_version == 0:
        for result in results:
            for entry in result.configs:
                entry.is_default = entry.config_source == ConfigSource.DEFAULT
    return DescribeConfigsResponse(results=results)
