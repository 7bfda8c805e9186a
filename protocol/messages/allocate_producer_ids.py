"""AllocateProducerIds (key 67): a broker requests a block of producer ids from the controller.

Versions 0, flexible from 0.
"""

from __future__ import annotations

from ..schema import int16, int32, int64, message, wire


@message(versions="0", flexible="0+")
class AllocateProducerIdsRequest:
    broker_id: int = wire(int32, "0+")
    broker_epoch: int = wire(int64, "0+", default=-1)


@message(versions="0", flexible="0+")
class AllocateProducerIdsResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    producer_id_start: int = wire(int64, "0+")
    producer_id_len: int = wire(int32, "0+")
