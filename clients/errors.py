"""What can go wrong on the client's side of the wire, each with the Kafka error code that fits it best.

KafkaError                       the broker's answer, or one of:
├── BrokerUnreachableError       no connection to any of the addresses tried
├── ConnectionLostError          the connection ended before the response came
├── RequestTimeoutError          no response in time; the connection is given up
├── DeliveryTimeoutError         a record was not acknowledged within delivery_timeout_ms
├── BufferFullError              no room for a record within max_block_ms
├── UnsupportedVersionError      the broker is too old (or too new) for what was asked
├── NoOffsetError                a position is needed and auto_offset_reset is "none"
└── LogTruncatedError            records at the consumer's position were replaced by a new leader's
"""

from __future__ import annotations

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.topic_partition import TopicPartition


def code_of(number: int) -> ErrorCode:
    """The error code of that number; one that a newer broker made up counts as UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


class BrokerUnreachableError(KafkaError):
    """No connection to any of the addresses tried; the message names them."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)

    def __str__(self) -> str:
        return self.message


class ConnectionLostError(KafkaError):
    """The connection ended while a response was awaited; whether the broker acted on the request is unknown."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class RequestTimeoutError(KafkaError):
    """No response within the request's timeout; whether the broker acted on the request is unknown."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class DeliveryTimeoutError(KafkaError):
    """A record was not acknowledged within `delivery_timeout_ms`; it may or may not be in the log."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class BufferFullError(KafkaError):
    """The producer's `buffer_memory` stayed full for `max_block_ms`."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class UnsupportedVersionError(KafkaError):
    """The broker speaks no version of an API that the request can be expressed in."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


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
