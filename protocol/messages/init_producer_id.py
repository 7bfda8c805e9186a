"""InitProducerId (key 22): obtain a producer id and epoch.

Versions 0-6, flexible from 2.
   1  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   3  may present its current producer id/epoch to have the epoch bumped (KIP-360)
   4  may return PRODUCER_FENCED (older versions get INVALID_PRODUCER_EPOCH)
   5  may return TRANSACTION_ABORTABLE
   6  two-phase commit participation (KIP-939, unstable)
"""

from __future__ import annotations

from ..schema import boolean, int16, int32, int64, message, string, wire


@message(versions="0-6", flexible="2+")
class InitProducerIdRequest:
    transactional_id: str | None = wire(string, "0+", null="0+")
    transaction_timeout_ms: int = wire(int32, "0+")
    producer_id: int = wire(int64, "3+", default=-1)
    producer_epoch: int = wire(int16, "3+", default=-1)
    enable2_pc: bool = wire(boolean, "6+")
    keep_prepared_txn: bool = wire(boolean, "6+")


@message(versions="0-6", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: int = wire(int32, "0+", ignorable=True)
    error_code: int = wire(int16, "0+")
    producer_id: int = wire(int64, "0+", default=-1)
    producer_epoch: int = wire(int16, "0+")
    ongoing_txn_producer_id: int = wire(int64, "6+", default=-1)
    ongoing_txn_producer_epoch: int = wire(int16, "6+", default=-1)
