"""BrokerHeartbeat (key 63): a broker keeps its session with the active controller alive (KIP-631).

Versions 0-2, flexible from 0.
   1  failed log directories (KIP-858)
   2  cordoned log directories
"""

from __future__ import annotations

from uuid import UUID

from ..schema import boolean, int16, int32, int64, message, uuid, wire


@message(versions="0-2", flexible="0+")
class BrokerHeartbeatRequest:
    broker_id: int = wire(int32, "0+")
    broker_epoch: int = wire(int64, "0+", default=-1)
    current_metadata_offset: int = wire(int64, "0+")
    want_fence: bool = wire(boolean, "0+")
    want_shut_down: bool = wire(boolean, "0+")
    offline_log_dirs: list[UUID] = wire([uuid], "1+", tag=0)
    cordoned_log_dirs: list[UUID] | None = wire([uuid], "2+", null="2+", default=None, tag=1)


@message(versions="0-2", flexible="0+")
class BrokerHeartbeatResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    is_caught_up: bool = wire(boolean, "0+")
    is_fenced: bool = wire(boolean, "0+", default=True)
    should_shut_down: bool = wire(boolean, "0+")
