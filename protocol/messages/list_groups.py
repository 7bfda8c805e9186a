"""ListGroups (key 16): the groups this broker coordinates.

Versions 0-5, flexible from 3.
   1  response adds throttle_time_ms
   2  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   4  filter by state
   5  filter by type (classic/consumer/share)
"""

from __future__ import annotations

from ..schema import int16, int32, message, string, wire


@message(versions="0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: list[str] = wire([string], "4+")
    types_filter: list[str] = wire([string], "5+")


@message
class ListedGroup:
    group_id: str = wire(string, "0+")
    protocol_type: str = wire(string, "0+")
    group_state: str = wire(string, "4+", ignorable=True)
    group_type: str = wire(string, "5+", ignorable=True)


@message(versions="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: int = wire(int32, "1+", ignorable=True)
    error_code: int = wire(int16, "0+")
    groups: list[ListedGroup] = wire([ListedGroup], "0+")
