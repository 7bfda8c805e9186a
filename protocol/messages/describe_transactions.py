"""DescribeTransactions (key 65): state of transactions.

Versions 0, flexible from 0.
"""

from __future__ import annotations

from ..schema import int16, int32, int64, message, string, wire


@message(versions="0", flexible="0+")
class DescribeTransactionsRequest:
    transactional_ids: list[str] = wire([string], "0+")


@message
class TopicData:
    topic: str = wire(string, "0+")
    partitions: list[int] = wire([int32], "0+")


@message
class TransactionState:
    error_code: int = wire(int16, "0+")
    transactional_id: str = wire(string, "0+")
    transaction_state: str = wire(string, "0+")
    transaction_timeout_ms: int = wire(int32, "0+")
    transaction_start_time_ms: int = wire(int64, "0+")
    producer_id: int = wire(int64, "0+")
    producer_epoch: int = wire(int16, "0+")
    topics: list[TopicData] = wire([TopicData], "0+")


@message(versions="0", flexible="0+")
class DescribeTransactionsResponse:
    throttle_time_ms: int = wire(int32, "0+")
    transaction_states: list[TransactionState] = wire([TransactionState], "0+")
