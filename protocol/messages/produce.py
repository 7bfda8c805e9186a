"""Produce (key 0): append record batches to partitions.

Versions 0-13, flexible from 9.
   1  response gains throttle time
   2  client understands message format v1; response carries log-append time
   3  record batch v2 mandatory (exactly one batch per partition); transactional id
   4  client understands KAFKA_STORAGE_ERROR
   5  log start offset lets an idempotent producer distinguish retention from loss
   6  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   7  zstd allowed in the payload
   8  per-record error list and message (KIP-467)
  10  leader hint + endpoints in tagged fields (KIP-951)
  11  may return TRANSACTION_ABORTABLE (KIP-890)
  12  transaction protocol v2: the produce itself registers the partition in the transaction; inside a v1
      transaction a client must use <=11
  13  topic id instead of topic name; may return UNKNOWN_TOPIC_ID
"""

from __future__ import annotations

from uuid import UUID

from ..schema import Buffer, int16, int32, int64, message, record_bytes, string, uuid, wire


@message
class PartitionProduceData:
    index: int = wire(int32, "0+")
    records: Buffer | None = wire(record_bytes, "0+", null="0+")


@message
class TopicProduceData:
    name: str = wire(string, "0-12", ignorable=True)
    topic_id: UUID = wire(uuid, "13+", ignorable=True)
    partition_data: list[PartitionProduceData] = wire([PartitionProduceData], "0+")


@message(versions="0-13", flexible="9+")
class ProduceRequest:
    transactional_id: str | None = wire(string, "3+", null="3+", default=None)
    acks: int = wire(int16, "0+")
    timeout_ms: int = wire(int32, "0+")
    topic_data: list[TopicProduceData] = wire([TopicProduceData], "0+")


@message
class BatchIndexAndErrorMessage:
    batch_index: int = wire(int32, "8+")
    batch_index_error_message: str | None = wire(string, "8+", null="8+", default=None)


@message
class LeaderIdAndEpoch:
    leader_id: int = wire(int32, "10+", default=-1)
    leader_epoch: int = wire(int32, "10+", default=-1)


@message
class PartitionProduceResponse:
    index: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    base_offset: int = wire(int64, "0+")
    log_append_time_ms: int = wire(int64, "2+", default=-1, ignorable=True)
    log_start_offset: int = wire(int64, "5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = wire([BatchIndexAndErrorMessage], "8+", ignorable=True)
    error_message: str | None = wire(string, "8+", null="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, "10+", tag=0)


@message
class TopicProduceResponse:
    name: str = wire(string, "0-12", ignorable=True)
    topic_id: UUID = wire(uuid, "13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = wire([PartitionProduceResponse], "0+")


@message
class NodeEndpoint:
    node_id: int = wire(int32, "10+")
    host: str = wire(string, "10+")
    port: int = wire(int32, "10+")
    rack: str | None = wire(string, "10+", null="10+", default=None)


@message(versions="0-13", flexible="9+")
class ProduceResponse:
    responses: list[TopicProduceResponse] = wire([TopicProduceResponse], "0+")
    throttle_time_ms: int = wire(int32, "1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = wire([NodeEndpoint], "10+", tag=0)
