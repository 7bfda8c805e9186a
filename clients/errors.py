"""What can go wrong on the client's side of the wire, each with the Kafka error code that fits it best.

KafkaError                       the broker's answer, or one of:
├── BrokerUnreachableError       no connection to any of the addresses tried
├── ConnectionLostError          the connection ended before the response came
├── RequestTimeoutError          no response in time; the connection is given up
├── DeliveryTimeoutError         a record was not acknowledged within delivery_timeout_ms
├── BufferFullError              no room for a record within max_block_ms
├── UnsupportedVersionError      the broker is too old (or too new) for what was asked
├── CommitFailedError            the group has given the partitions to others; nothing was committed
├── RebalanceInProgressError     the group is rebalancing; read on, then commit again
├── FencedInstanceIdError        another consumer has the same group_instance_id
├── NoOffsetError                a position is needed and auto_offset_reset is "none"
└── LogTruncatedError            records at the consumer's position were replaced by a new leader's
"""

from __future__ import annotations

from ..protocol.errors import (
    ConnectionLostError,
    ErrorCode,
    KafkaError,
    RequestTimeoutError,
    UnsupportedVersionError,
    code_of,
)
from ..protocol.topic_partition import TopicPartition

__all__ = [
    "BrokerUnreachableError",
    "BufferFullError",
    "CommitFailedError",
    "ConnectionLostError",
    "DeliveryTimeoutError",
    "FencedInstanceIdError",
    "LogTruncatedError",
    "NoOffsetError",
    "RebalanceInProgressError",
    "RequestTimeoutError",
    "UnsupportedVersionError",
    "code_of",
]


class BrokerUnreachableError(KafkaError):
    """No connection to any of the addresses tried; the message names them."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)

    def __str__(self) -> str:
        return self.message


class DeliveryTimeoutError(KafkaError):
    """A record was not acknowledged within `delivery_timeout_ms`; it may or may not be in the log."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class BufferFullError(KafkaError):
    """The producer's `buffer_memory` stayed full for `max_block_ms`."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class CommitFailedError(KafkaError):
    """The member is not in the group any more, or in an older generation: its partitions may be another's."""

    def __init__(self, group_id: str) -> None:
        super().__init__(
            ErrorCode.ILLEGAL_GENERATION,
            f"nothing was committed: group {group_id!r} has rebalanced and may have given the partitions to another "
            "member. Most often reads were more than max_poll_interval_ms apart: allow more time, or take fewer "
            "records at once with max_poll_records",
        )


class RebalanceInProgressError(KafkaError):
    """A commit met a rebalance. Read on to take part in it, then commit what is still assigned."""

    def __init__(self, group_id: str) -> None:
        super().__init__(
            ErrorCode.REBALANCE_IN_PROGRESS,
            f"nothing was committed: group {group_id!r} is rebalancing; read on to take part, then commit again",
        )


class FencedInstanceIdError(KafkaError):
    """Another consumer joined with the same `group_instance_id`; this one is out for good."""

    def __init__(self, group_id: str, group_instance_id: str | None) -> None:
        super().__init__(
            ErrorCode.FENCED_INSTANCE_ID,
            f"another member of group {group_id!r} has group_instance_id {group_instance_id!r}",
        )


class NoOffsetError(KafkaError):
    """A partition has no valid position and `auto_offset_reset` is "none"; seek to go on."""

    def __init__(self, partition: TopicPartition, message: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        self.partition = partition


class LogTruncatedError(KafkaError):
    """The log lost records the consumer had read (KIP-320); `end_offset` is where both still agree."""

    def __init__(self, partition: TopicPartition, position: int, end_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} was truncated to {end_offset}, below the position {position}"
        )
        self.partition = partition
        self.position = position
        self.end_offset = end_offset
