"""RemoveRaftVoter (key 81): remove a controller from the voters (KIP-853).

Version 0, flexible from 0.
"""

from __future__ import annotations

from uuid import UUID

from ..schema import int16, int32, message, string, uuid, wire


@message(versions="0", flexible="0+")
class RemoveRaftVoterRequest:
    cluster_id: str | None = wire(string, "0+", null="0+")
    voter_id: int = wire(int32, "0+")
    voter_directory_id: UUID = wire(uuid, "0+")


@message(versions="0", flexible="0+")
class RemoveRaftVoterResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+", ignorable=True)
