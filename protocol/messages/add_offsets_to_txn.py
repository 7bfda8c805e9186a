"""AddOffsetsToTxn (key 25): register a consumer group with an open transaction.

Versions 0-4, flexible from 3.
   1  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   2  may return PRODUCER_FENCED
   4  may return TRANSACTION_ABORTABLE
"""

from __future__ import annotations

from ..schema import int16, int32, int64, message, string, wire


@message(versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    transactional_id: str = wire(string, "0+")
    producer_id: int = wire(int64, "0+")
    producer_epoch: int = wire(int16, "0+")
    group_id: str = wire(string, "0+")


@message(versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
