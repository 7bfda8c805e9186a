"""CreateAcls (key 30): add ACLs.

Versions 0-3, flexible from 2.
   1  pattern type (KIP-290); throttled responses are sent immediately; the broker mutes the connection afterwards
      (KIP-219)
   3  USER resource type (KIP-373)
"""

from __future__ import annotations

from ..schema import int8, int16, int32, message, string, wire


@message
class AclCreation:
    resource_type: int = wire(int8, "0+")
    resource_name: str = wire(string, "0+")
    resource_pattern_type: int = wire(int8, "1+", default=3)
    principal: str = wire(string, "0+")
    host: str = wire(string, "0+")
    operation: int = wire(int8, "0+")
    permission_type: int = wire(int8, "0+")


@message(versions="0-3", flexible="2+")
class CreateAclsRequest:
    creations: list[AclCreation] = wire([AclCreation], "0+")


@message
class AclCreationResult:
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+")


@message(versions="0-3", flexible="2+")
class CreateAclsResponse:
    throttle_time_ms: int = wire(int32, "0+")
    results: list[AclCreationResult] = wire([AclCreationResult], "0+")
