"""EndTxn (key 26): commit or abort a transaction.

Versions 0-5, flexible from 3.
   1  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   2  may return PRODUCER_FENCED
   4  may return TRANSACTION_ABORTABLE
   5  transaction protocol v2: epoch bumped on every commit/abort and returned (KIP-890)
"""

from __future__ import annotations

from ..schema import boolean, int16, int32, int64, message, string, wire


@message(versions="0-5", flexible="3+")
class EndTxnRequest:
    transactional_id: str = wire(string, "0+")
    producer_id: int = wire(int64, "0+")
    producer_epoch: int = wire(int16, "0+")
    committed: bool = wire(boolean, "0+")


@message(versions="0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    producer_id: int = wire(int64, "5+", default=-1, ignorable=True)
    producer_epoch: int = wire(int16, "5+", default=-1, ignorable=True)
