"""LeaveGroup (key 13): members leave a group.

Versions 0-5, flexible from 4.
   1  response adds throttle_time_ms
   2  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   3  batch of members; per-member errors
   5  request adds reason
"""

from __future__ import annotations

from ..schema import int16, int32, message, string, wire


@message
class MemberIdentity:
    member_id: str = wire(string, "3+")
    group_instance_id: str | None = wire(string, "3+", null="3+", default=None)
    reason: str | None = wire(string, "5+", null="5+", default=None, ignorable=True)


@message(versions="0-5", flexible="4+")
class LeaveGroupRequest:
    group_id: str = wire(string, "0+")
    member_id: str = wire(string, "0-2")
    members: list[MemberIdentity] = wire([MemberIdentity], "3+")


@message
class MemberResponse:
    member_id: str = wire(string, "3+")
    group_instance_id: str | None = wire(string, "3+", null="3+")
    error_code: int = wire(int16, "3+")


@message(versions="0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: int = wire(int32, "1+", ignorable=True)
    error_code: int = wire(int16, "0+")
    members: list[MemberResponse] = wire([MemberResponse], "3+")
