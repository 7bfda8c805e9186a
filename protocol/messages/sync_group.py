"""SyncGroup (key 14): the group leader hands in the assignment, every member takes its own away.

Versions 0-5, flexible from 4.
   1  response adds throttle_time_ms
   2  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   3  group.instance.id
   5  protocol type/name checked and echoed
"""

from __future__ import annotations

from ..schema import bytes_, int16, int32, message, string, wire


@message
class SyncGroupRequestAssignment:
    member_id: str = wire(string, "0+")
    assignment: bytes = wire(bytes_, "0+")


@message(versions="0-5", flexible="4+")
class SyncGroupRequest:
    group_id: str = wire(string, "0+")
    generation_id: int = wire(int32, "0+")
    member_id: str = wire(string, "0+")
    group_instance_id: str | None = wire(string, "3+", null="3+", default=None)
    protocol_type: str | None = wire(string, "5+", null="5+", default=None, ignorable=True)
    protocol_name: str | None = wire(string, "5+", null="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = wire([SyncGroupRequestAssignment], "0+")


@message(versions="0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: int = wire(int32, "1+", ignorable=True)
    error_code: int = wire(int16, "0+")
    protocol_type: str | None = wire(string, "5+", null="5+", default=None, ignorable=True)
    protocol_name: str | None = wire(string, "5+", null="5+", default=None, ignorable=True)
    assignment: bytes = wire(bytes_, "0+")
