"""ListConfigResources (key 74): resources that have configuration of their own.

Versions 0-1, flexible from 0.
   1  request adds resource_types; response adds resource_type
"""

from __future__ import annotations

from ..schema import int8, int16, int32, message, string, wire


@message(versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: list[int] = wire([int8], "1+")


@message
class ConfigResource:
    resource_name: str = wire(string, "0+")
    resource_type: int = wire(int8, "1+", default=16, ignorable=True)


@message(versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    config_resources: list[ConfigResource] = wire([ConfigResource], "0+")
