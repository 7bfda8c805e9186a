"""DescribeConfigs (key 32): read the configuration of topics and brokers.

Versions 0-4, flexible from 4.
   1  config source + synonyms replace is_default
   2  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   3  config type and documentation
"""

from __future__ import annotations

from ..schema import boolean, int8, int16, int32, message, string, wire


@message
class DescribeConfigsResource:
    resource_type: int = wire(int8, "0+")
    resource_name: str = wire(string, "0+")
    configuration_keys: list[str] | None = wire([string], "0+", null="0+")


@message(versions="0-4", flexible="4+")
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = wire([DescribeConfigsResource], "0+")
    include_synonyms: bool = wire(boolean, "1+")
    include_documentation: bool = wire(boolean, "3+")


@message
class DescribeConfigsSynonym:
    name: str = wire(string, "1+")
    value: str | None = wire(string, "1+", null="1+")
    source: int = wire(int8, "1+")


@message
class DescribeConfigsResourceResult:
    name: str = wire(string, "0+")
    value: str | None = wire(string, "0+", null="0+")
    read_only: bool = wire(boolean, "0+")
    is_default: bool = wire(boolean, "0")
    config_source: int = wire(int8, "1+", default=-1, ignorable=True)
    is_sensitive: bool = wire(boolean, "0+")
    synonyms: list[DescribeConfigsSynonym] = wire([DescribeConfigsSynonym], "1+", ignorable=True)
    config_type: int = wire(int8, "3+", ignorable=True)
    documentation: str | None = wire(string, "3+", null="3+", ignorable=True)


@message
class DescribeConfigsResult:
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+")
    resource_type: int = wire(int8, "0+")
    resource_name: str = wire(string, "0+")
    configs: list[DescribeConfigsResourceResult] = wire([DescribeConfigsResourceResult], "0+")


@message(versions="0-4", flexible="4+")
class DescribeConfigsResponse:
    throttle_time_ms: int = wire(int32, "0+")
    results: list[DescribeConfigsResult] = wire([DescribeConfigsResult], "0+")
