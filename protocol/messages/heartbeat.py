"""Heartbeat (key 12): a group member reports that it is alive.

Versions 0-4, flexible from 4.
   1  response adds throttle_time_ms
   2  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   3  group.instance.id
"""

from __future__ import annotations

from ..schema import int16, int32, message, string, wire


@message(versions="0-4", flexible="4+")
class HeartbeatRequest:
    group_id: str = wire(string, "0+")
    generation_id: int = wire(int32, "0+")
    member_id: str = wire(string, "0+")
    group_instance_id: str | None = wire(string, "3+", null="3+", default=None)


@message(versions="0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: int = wire(int32, "1+", ignorable=True)
    error_code: int = wire(int16, "0+")
