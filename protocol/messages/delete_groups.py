"""DeleteGroups (key 42): delete empty groups.

Versions 0-2, flexible from 2.
   1  throttled answers leave at once, the broker mutes the connection afterwards (KIP-219)
"""

from __future__ import annotations

from ..schema import int16, int32, message, string, wire


@message(versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    groups_names: list[str] = wire([string], "0+")


@message
class DeletableGroupResult:
    group_id: str = wire(string, "0+")
    error_code: int = wire(int16, "0+")


@message(versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: int = wire(int32, "0+")
    results: list[DeletableGroupResult] = wire([DeletableGroupResult], "0+")
