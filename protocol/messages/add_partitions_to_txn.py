"""AddPartitionsToTxn (key 24): register partitions with an open transaction.

Versions 0-5, flexible from 3.
   1  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   2  may return PRODUCER_FENCED
   4  batch of transactions + verify_only, broker-to-broker use (KIP-890); clients use <=3
   5  may return TRANSACTION_ABORTABLE
"""

from __future__ import annotations

from ..schema import boolean, int16, int32, int64, message, string, wire


@message
class AddPartitionsToTxnTopic:
    name: str = wire(string, "0+")
    partitions: list[int] = wire([int32], "0+")


@message
class AddPartitionsToTxnTransaction:
    transactional_id: str = wire(string, "4+")
    producer_id: int = wire(int64, "4+")
    producer_epoch: int = wire(int16, "4+")
    verify_only: bool = wire(boolean, "4+")
    topics: list[AddPartitionsToTxnTopic] = wire([AddPartitionsToTxnTopic], "4+")


@message(versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    transactions: list[AddPartitionsToTxnTransaction] = wire([AddPartitionsToTxnTransaction], "4+")
    v3_and_below_transactional_id: str = wire(string, "0-3")
    v3_and_below_producer_id: int = wire(int64, "0-3")
    v3_and_below_producer_epoch: int = wire(int16, "0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = wire([AddPartitionsToTxnTopic], "0-3")


@message
class AddPartitionsToTxnPartitionResult:
    partition_index: int = wire(int32, "0+")
    partition_error_code: int = wire(int16, "0+")


@message
class AddPartitionsToTxnTopicResult:
    name: str = wire(string, "0+")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = wire([AddPartitionsToTxnPartitionResult], "0+")


@message
class AddPartitionsToTxnResult:
    transactional_id: str = wire(string, "4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = wire([AddPartitionsToTxnTopicResult], "4+")


@message(versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = wire([AddPartitionsToTxnResult], "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = wire([AddPartitionsToTxnTopicResult], "0-3")
