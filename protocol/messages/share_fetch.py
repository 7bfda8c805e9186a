"""ShareFetch (key 78): acquire records for a member of a share group, and acknowledge acquired ones (KIP-932).

Versions 1-2, flexible from 0. Version 0 was an early-access version of Kafka 4.0.
   1  maximum number of records and batch size instead of a size per partition
   2  record limit mode (KIP-1206), renew acknowledgements (KIP-1222)
"""

from __future__ import annotations

from uuid import UUID

from ..schema import Buffer, boolean, int8, int16, int32, int64, message, record_bytes, string, uuid, wire


@message
class AcknowledgementBatch:
    first_offset: int = wire(int64, "0+")
    last_offset: int = wire(int64, "0+")
    acknowledge_types: list[int] = wire([int8], "0+")


@message
class FetchPartition:
    partition_index: int = wire(int32, "0+")
    acknowledgement_batches: list[AcknowledgementBatch] = wire([AcknowledgementBatch], "0+")


@message
class FetchTopic:
    topic_id: UUID = wire(uuid, "0+")
    partitions: list[FetchPartition] = wire([FetchPartition], "0+")


@message
class ForgottenTopic:
    topic_id: UUID = wire(uuid, "0+")
    partitions: list[int] = wire([int32], "0+")


@message(versions="1-2", flexible="0+")
class ShareFetchRequest:
    group_id: str | None = wire(string, "0+", null="0+", default=None)
    member_id: str | None = wire(string, "0+", null="0+")
    share_session_epoch: int = wire(int32, "0+")
    max_wait_ms: int = wire(int32, "0+")
    min_bytes: int = wire(int32, "0+")
    max_bytes: int = wire(int32, "0+", default=2_147_483_647)
    max_records: int = wire(int32, "1+")
    batch_size: int = wire(int32, "1+")
    share_acquire_mode: int = wire(int8, "2+", ignorable=True)
    is_renew_ack: bool = wire(boolean, "2+")
    topics: list[FetchTopic] = wire([FetchTopic], "0+")
    forgotten_topics_data: list[ForgottenTopic] = wire([ForgottenTopic], "0+")


@message
class LeaderIdAndEpoch:
    leader_id: int = wire(int32, "0+")
    leader_epoch: int = wire(int32, "0+")


@message
class AcquiredRecords:
    first_offset: int = wire(int64, "0+")
    last_offset: int = wire(int64, "0+")
    delivery_count: int = wire(int16, "0+")


@message
class PartitionData:
    partition_index: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+", default=None)
    acknowledge_error_code: int = wire(int16, "0+")
    acknowledge_error_message: str | None = wire(string, "0+", null="0+", default=None)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, "0+")
    records: Buffer = wire(record_bytes, "0+", default=b"")
    acquired_records: list[AcquiredRecords] = wire([AcquiredRecords], "0+")


@message
class ShareFetchableTopicResponse:
    topic_id: UUID = wire(uuid, "0+")
    partitions: list[PartitionData] = wire([PartitionData], "0+")


@message
class NodeEndpoint:
    node_id: int = wire(int32, "0+")
    host: str = wire(string, "0+")
    port: int = wire(int32, "0+")
    rack: str | None = wire(string, "0+", null="0+", default=None)


@message(versions="1-2", flexible="0+")
class ShareFetchResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+", default=None)
    acquisition_lock_timeout_ms: int = wire(int32, "1+")
    responses: list[ShareFetchableTopicResponse] = wire([ShareFetchableTopicResponse], "0+")
    node_endpoints: list[NodeEndpoint] = wire([NodeEndpoint], "0+")
