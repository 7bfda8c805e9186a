"""OffsetForLeaderEpoch (key 23): where a leader epoch ends, so that a follower or consumer can find its divergence.

Versions 0-4, flexible from 4.
   1  answer carries the epoch it found (KIP-279)
   2  current leader epoch fencing; throttle time
   3  replica id (-2 debug, -1 consumer)
"""

from __future__ import annotations

from ..schema import int16, int32, int64, message, string, wire


@message
class OffsetForLeaderPartition:
    partition: int = wire(int32, "0+")
    current_leader_epoch: int = wire(int32, "2+", default=-1, ignorable=True)
    leader_epoch: int = wire(int32, "0+")


@message
class OffsetForLeaderTopic:
    topic: str = wire(string, "0+")
    partitions: list[OffsetForLeaderPartition] = wire([OffsetForLeaderPartition], "0+")


@message(versions="0-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    replica_id: int = wire(int32, "3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = wire([OffsetForLeaderTopic], "0+")


@message
class EpochEndOffset:
    error_code: int = wire(int16, "0+")
    partition: int = wire(int32, "0+")
    leader_epoch: int = wire(int32, "1+", default=-1, ignorable=True)
    end_offset: int = wire(int64, "0+", default=-1)


@message
class OffsetForLeaderTopicResult:
    topic: str = wire(string, "0+")
    partitions: list[EpochEndOffset] = wire([EpochEndOffset], "0+")


@message(versions="0-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = wire(int32, "2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = wire([OffsetForLeaderTopicResult], "0+")
