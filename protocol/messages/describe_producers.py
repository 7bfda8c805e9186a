"""DescribeProducers (key 61): producers with state in partitions.

Versions 0, flexible from 0.
"""

from __future__ import annotations

from ..schema import int16, int32, int64, message, string, wire


@message
class TopicRequest:
    name: str = wire(string, "0+")
    partition_indexes: list[int] = wire([int32], "0+")


@message(versions="0", flexible="0+")
class DescribeProducersRequest:
    topics: list[TopicRequest] = wire([TopicRequest], "0+")


@message
class ProducerState:
    producer_id: int = wire(int64, "0+")
    producer_epoch: int = wire(int32, "0+")
    last_sequence: int = wire(int32, "0+", default=-1)
    last_timestamp: int = wire(int64, "0+", default=-1)
    coordinator_epoch: int = wire(int32, "0+")
    current_txn_start_offset: int = wire(int64, "0+", default=-1)


@message
class PartitionResponse:
    partition_index: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+", default=None)
    active_producers: list[ProducerState] = wire([ProducerState], "0+")


@message
class TopicResponse:
    name: str = wire(string, "0+")
    partitions: list[PartitionResponse] = wire([PartitionResponse], "0+")


@message(versions="0", flexible="0+")
class DescribeProducersResponse:
    throttle_time_ms: int = wire(int32, "0+")
    topics: list[TopicResponse] = wire([TopicResponse], "0+")
