"""JoinGroup (key 11): enter a consumer group, or rejoin it during a rebalance.

Versions 0-9, flexible from 6.
   1  rebalance timeout separate from session timeout (v0: same value)
   2  response adds throttle_time_ms
   3  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   4  empty member id gets MEMBER_ID_REQUIRED plus an id to retry with (KIP-394)
   5  group.instance.id (KIP-345)
   7  protocol type in answer, protocol name nullable (KIP-559)
   8  reason text (KIP-800)
   9  skip_assignment for a restarted static leader (KIP-814)
"""

from __future__ import annotations

from ..schema import boolean, bytes_, int16, int32, message, string, wire


@message
class JoinGroupRequestProtocol:
    name: str = wire(string, "0+")
    metadata: bytes = wire(bytes_, "0+")


@message(versions="0-9", flexible="6+")
class JoinGroupRequest:
    group_id: str = wire(string, "0+")
    session_timeout_ms: int = wire(int32, "0+")
    rebalance_timeout_ms: int = wire(int32, "1+", default=-1, ignorable=True)
    member_id: str = wire(string, "0+")
    group_instance_id: str | None = wire(string, "5+", null="5+", default=None)
    protocol_type: str = wire(string, "0+")
    protocols: list[JoinGroupRequestProtocol] = wire([JoinGroupRequestProtocol], "0+")
    reason: str | None = wire(string, "8+", null="8+", default=None, ignorable=True)


@message
class JoinGroupResponseMember:
    member_id: str = wire(string, "0+")
    group_instance_id: str | None = wire(string, "5+", null="5+", default=None, ignorable=True)
    metadata: bytes = wire(bytes_, "0+")


@message(versions="0-9", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: int = wire(int32, "2+", ignorable=True)
    error_code: int = wire(int16, "0+")
    generation_id: int = wire(int32, "0+", default=-1)
    protocol_type: str | None = wire(string, "7+", null="7+", default=None, ignorable=True)
    protocol_name: str | None = wire(string, "0+", null="7+")
    leader: str = wire(string, "0+")
    skip_assignment: bool = wire(boolean, "9+")
    member_id: str = wire(string, "0+")
    members: list[JoinGroupResponseMember] = wire([JoinGroupResponseMember], "0+")
