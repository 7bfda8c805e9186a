"""AddRaftVoter (key 80): add a controller to the voters (KIP-853).

Versions 0-1, flexible from 0.
   1  respond before the new voters are committed
"""

from __future__ import annotations

from uuid import UUID

from ..schema import boolean, int16, int32, message, string, uint16, uuid, wire


@message
class Listener:
    name: str = wire(string, "0+")
    host: str = wire(string, "0+")
    port: int = wire(uint16, "0+")


@message(versions="0-1", flexible="0+")
class AddRaftVoterRequest:
    cluster_id: str | None = wire(string, "0+", null="0+")
    timeout_ms: int = wire(int32, "0+")
    voter_id: int = wire(int32, "0+")
    voter_directory_id: UUID = wire(uuid, "0+")
    listeners: list[Listener] = wire([Listener], "0+")
    ack_when_committed: bool = wire(boolean, "1+", default=True)


@message(versions="0-1", flexible="0+")
class AddRaftVoterResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+", ignorable=True)
