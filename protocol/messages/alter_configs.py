"""AlterConfigs (key 33): replace the configuration of a resource.

Versions 0-2, flexible from 2.
   1  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
"""

from __future__ import annotations

from ..schema import boolean, int8, int16, int32, message, string, wire


@message
class AlterableConfig:
    name: str = wire(string, "0+")
    value: str | None = wire(string, "0+", null="0+")


@message
class AlterConfigsResource:
    resource_type: int = wire(int8, "0+")
    resource_name: str = wire(string, "0+")
    configs: list[AlterableConfig] = wire([AlterableConfig], "0+")


@message(versions="0-2", flexible="2+")
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = wire([AlterConfigsResource], "0+")
    validate_only: bool = wire(boolean, "0+")


@message
class AlterConfigsResourceResponse:
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+")
    resource_type: int = wire(int8, "0+")
    resource_name: str = wire(string, "0+")


@message(versions="0-2", flexible="2+")
class AlterConfigsResponse:
    throttle_time_ms: int = wire(int32, "0+")
    responses: list[AlterConfigsResourceResponse] = wire([AlterConfigsResourceResponse], "0+")
