"""ListOffsets (key 2): find offsets by timestamp, or the ends of a partition.

Versions 0-11, flexible from 6.
   1  one offset + timestamp per partition; v0 returned an array of segment boundaries
   2  isolation level
   3  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   4  leader epoch both ways
   5  may return OFFSET_NOT_AVAILABLE just after a leader election
   7  timestamp -3 = offset of the record with the largest timestamp (KIP-734)
   8  timestamp -4 = earliest local offset (KIP-405)
   9  timestamp -5 = last tiered offset (KIP-1005)
  10  timeout for remote lookups (KIP-1075)
  11  timestamp -6 = earliest offset still pending upload (KIP-1023)
"""

from __future__ import annotations

from ..schema import int8, int16, int32, int64, message, string, wire


@message
class ListOffsetsPartition:
    partition_index: int = wire(int32, "0+")
    current_leader_epoch: int = wire(int32, "4+", default=-1, ignorable=True)
    timestamp: int = wire(int64, "0+")
    max_num_offsets: int = wire(int32, "0", default=1)


@message
class ListOffsetsTopic:
    name: str = wire(string, "0+")
    partitions: list[ListOffsetsPartition] = wire([ListOffsetsPartition], "0+")


@message(versions="0-11", flexible="6+")
class ListOffsetsRequest:
    replica_id: int = wire(int32, "0+")
    isolation_level: int = wire(int8, "2+")
    topics: list[ListOffsetsTopic] = wire([ListOffsetsTopic], "0+")
    timeout_ms: int = wire(int32, "10+", ignorable=True)


@message
class ListOffsetsPartitionResponse:
    partition_index: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    old_style_offsets: list[int] = wire([int64], "0")
    timestamp: int = wire(int64, "1+", default=-1)
    offset: int = wire(int64, "1+", default=-1)
    leader_epoch: int = wire(int32, "4+", default=-1)


@message
class ListOffsetsTopicResponse:
    name: str = wire(string, "0+")
    partitions: list[ListOffsetsPartitionResponse] = wire([ListOffsetsPartitionResponse], "0+")


@message(versions="0-11", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: int = wire(int32, "2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = wire([ListOffsetsTopicResponse], "0+")
