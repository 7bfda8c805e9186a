"""ControlledShutdown (key 7): a broker requests a transfer of its leaderships from the controller.

Versions 0-3, flexible from 3.
   0  request header v0: no client id
   1  normal request header
   2  broker epoch
"""

from __future__ import annotations

from ..schema import int16, int32, int64, message, string, wire


@message(versions="0-3", flexible="3+")
class ControlledShutdownRequest:
    broker_id: int = wire(int32, "0+")
    broker_epoch: int = wire(int64, "2+", default=-1, ignorable=True)


@message
class RemainingPartition:
    topic_name: str = wire(string, "0+")
    partition_index: int = wire(int32, "0+")


@message(versions="0-3", flexible="3+")
class ControlledShutdownResponse:
    error_code: int = wire(int16, "0+")
    remaining_partitions: list[RemainingPartition] = wire([RemainingPartition], "0+")
