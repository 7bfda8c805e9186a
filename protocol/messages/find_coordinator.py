"""FindCoordinator (key 10): which broker coordinates a group or a transactional id.

Versions 0-6, flexible from 3.
   0  group key only
   1  key type 0=group 1=transaction
   2  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   4  batched keys (KIP-699)
   5  may return TRANSACTION_ABORTABLE
   6  key type 2=share, key "group:topicId:partition"
"""

from __future__ import annotations

from ..schema import int8, int16, int32, message, string, wire


@message(versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    key: str = wire(string, "0-3")
    key_type: int = wire(int8, "1+")
    coordinator_keys: list[str] = wire([string], "4+")


@message
class Coordinator:
    key: str = wire(string, "4+")
    node_id: int = wire(int32, "4+")
    host: str = wire(string, "4+")
    port: int = wire(int32, "4+")
    error_code: int = wire(int16, "4+")
    error_message: str | None = wire(string, "4+", null="4+", ignorable=True)


@message(versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    throttle_time_ms: int = wire(int32, "1+", ignorable=True)
    error_code: int = wire(int16, "0-3")
    error_message: str | None = wire(string, "1-3", null="1-3", ignorable=True)
    node_id: int = wire(int32, "0-3")
    host: str = wire(string, "0-3")
    port: int = wire(int32, "0-3")
    coordinators: list[Coordinator] = wire([Coordinator], "4+")
