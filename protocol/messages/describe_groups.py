"""DescribeGroups (key 15): state and members of groups.

Versions 0-6, flexible from 5.
   1  response adds throttle_time_ms
   2  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   3  authorized operations
   4  group.instance.id of members
   6  GROUP_ID_NOT_FOUND + message instead of a Dead group (KIP-1043)
"""

from __future__ import annotations

from ..schema import boolean, bytes_, int16, int32, message, string, wire


@message(versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: list[str] = wire([string], "0+")
    include_authorized_operations: bool = wire(boolean, "3+")


@message
class DescribedGroupMember:
    member_id: str = wire(string, "0+")
    group_instance_id: str | None = wire(string, "4+", null="4+", default=None, ignorable=True)
    client_id: str = wire(string, "0+")
    client_host: str = wire(string, "0+")
    member_metadata: bytes = wire(bytes_, "0+")
    member_assignment: bytes = wire(bytes_, "0+")


@message
class DescribedGroup:
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "6+", null="6+", default=None)
    group_id: str = wire(string, "0+")
    group_state: str = wire(string, "0+")
    protocol_type: str = wire(string, "0+")
    protocol_data: str = wire(string, "0+")
    members: list[DescribedGroupMember] = wire([DescribedGroupMember], "0+")
    authorized_operations: int = wire(int32, "3+", default=-2_147_483_648)


@message(versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: int = wire(int32, "1+", ignorable=True)
    groups: list[DescribedGroup] = wire([DescribedGroup], "0+")
