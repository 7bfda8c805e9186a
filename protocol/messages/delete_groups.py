"""DeleteGroups (key 42): delete empty groups.

Versions 0-3, flexible from 2.
   1  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   3  response adds the error message of a group; may return GROUP_DELETION_FAILED
"""

from __future__ import annotations

from ..schema import int16, int32, message, string, wire


@message(versions="0-3", flexible="2+")
class DeleteGroupsRequest:
    groups_names: list[str] = wire([string], "0+")


@message
class DeletableGroupResult:
    group_id: str = wire(string, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "3+", null="3+", default=None, ignorable=True)


@message(versions="0-3", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: int = wire(int32, "0+")
    results: list[DeletableGroupResult] = wire([DeletableGroupResult], "0+")
