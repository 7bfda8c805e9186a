"""DescribeLogDirs (key 35): log directories and the replicas in them.

Versions 0-5, flexible from 2.
   1  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   3  top-level error (KIP-784)
   4  volume total/usable bytes (KIP-827)
   5  cordoned flag
"""

from __future__ import annotations

from ..schema import boolean, int16, int32, int64, message, string, wire


@message
class DescribableLogDirTopic:
    topic: str = wire(string, "0+")
    partitions: list[int] = wire([int32], "0+")


@message(versions="0-5", flexible="2+")
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None = wire([DescribableLogDirTopic], "0+", null="0+")


@message
class DescribeLogDirsPartition:
    partition_index: int = wire(int32, "0+")
    partition_size: int = wire(int64, "0+")
    offset_lag: int = wire(int64, "0+")
    is_future_key: bool = wire(boolean, "0+")


@message
class DescribeLogDirsTopic:
    name: str = wire(string, "0+")
    partitions: list[DescribeLogDirsPartition] = wire([DescribeLogDirsPartition], "0+")


@message
class DescribeLogDirsResult:
    error_code: int = wire(int16, "0+")
    log_dir: str = wire(string, "0+")
    topics: list[DescribeLogDirsTopic] = wire([DescribeLogDirsTopic], "0+")
    total_bytes: int = wire(int64, "4+", default=-1, ignorable=True)
    usable_bytes: int = wire(int64, "4+", default=-1, ignorable=True)
    is_cordoned: bool = wire(boolean, "5+", ignorable=True)


@message(versions="0-5", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "3+", ignorable=True)
    results: list[DescribeLogDirsResult] = wire([DescribeLogDirsResult], "0+")
