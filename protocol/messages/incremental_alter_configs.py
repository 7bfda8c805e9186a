"""IncrementalAlterConfigs (key 44): change single configuration keys of a resource.

Versions 0-1, flexible from 1.
"""

from __future__ import annotations

from ..schema import boolean, int8, int16, int32, message, string, wire


@message
class AlterableConfig:
    name: str = wire(string, "0+")
    config_operation: int = wire(int8, "0+")
    value: str | None = wire(string, "0+", null="0+")


@message
class AlterConfigsResource:
    resource_type: int = wire(int8, "0+")
    resource_name: str = wire(string, "0+")
    configs: list[AlterableConfig] = wire([AlterableConfig], "0+")


@message(versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    resources: list[AlterConfigsResource] = wire([AlterConfigsResource], "0+")
    validate_only: bool = wire(boolean, "0+")


@message
class AlterConfigsResourceResponse:
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+")
    resource_type: int = wire(int8, "0+")
    resource_name: str = wire(string, "0+")


@message(versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = wire(int32, "0+")
    responses: list[AlterConfigsResourceResponse] = wire([AlterConfigsResourceResponse], "0+")
