"""Errors of the client, each with the Kafka error code that fits it best.

KafkaError                       the broker's error, or one of:
├── BrokerUnreachableError       no connection to any of the tried addresses
├── ConnectionLostError          the connection ended before the response
├── RequestTimeoutError          no response in time; the connection is closed
├── DeliveryTimeoutError         a record was not acknowledged within delivery_timeout_ms
├── BufferFullError              no room for a record within max_block_ms
├── UnsupportedVersionError      the broker is too old (or too new) for the request
├── CommitFailedError            the partitions may belong to other members; nothing was committed
├── RebalanceInProgressError     the group is rebalancing; read, then commit again
├── FencedInstanceIdError        another consumer has the same group_instance_id
├── NoOffsetError                a position is required and auto_offset_reset is "none"
└── LogTruncatedError            records before the consumer's position were replaced by a new leader's
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
    """No connection to any of the tried addresses; the message contains them."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)

    def __str__(self) -> str:
        return self.message


class DeliveryTimeoutError(KafkaError):
    """A record was not acknowledged within `delivery_timeout_ms`; it may or may not be in the log."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class BufferFullError(KafkaError):
    """The producer's `buffer_memory` was full for `max_block_ms`."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class CommitFailedError(KafkaError):
    """The member is not in the group any more, or in an older generation: its partitions may belong to another
    member.
    """

    def __init__(self, group_id: str) -> None:
        super().__init__(
            ErrorCode.ILLEGAL_GENERATION,
            f"nothing was committed: group {group_id!r} has rebalanced and may have assigned the partitions to "
            "another member. The usual cause is a pause of more than max_poll_interval_ms between reads: allow more "
            "time, or read fewer records at a time with max_poll_records",
        )


class RebalanceInProgressError(KafkaError):
    """A commit during a rebalance. Read to take part in it, then commit the partitions that are still assigned."""

    def __init__(self, group_id: str) -> None:
        super().__init__(
            ErrorCode.REBALANCE_IN_PROGRESS,
            f"nothing was committed: group {group_id!r} is rebalancing; read to take part, then commit again",
        )


class FencedInstanceIdError(KafkaError):
    """Another consumer joined with the same `group_instance_id`; this consumer cannot continue."""

    def __init__(self, group_id: str, group_instance_id: str | None) -> None:
        super().__init__(
            ErrorCode.FENCED_INSTANCE_ID,
            f"another member of group {group_id!r} has group_instance_id {group_instance_id!r}",
        )


class NoOffsetError(KafkaError):
    """A partition has no valid position and `auto_offset_reset` is "none"; seek to continue."""

    def __init__(self, partition: TopicPartition, message: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        self.partition = partition


class LogTruncatedError(KafkaError):
    """The log lost records that the consumer had read (KIP-320); up to `end_offset` both agree."""

    def __init__(self, partition: TopicPartition, position: int, end_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} was truncated to {end_offset}, below the position {position}"
        )
        self.partition = partition
        self.position = position
        self.end_offset = end_offset
