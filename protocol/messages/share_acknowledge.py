"""ShareAcknowledge (key 79): acknowledge records that a member of a share group has acquired (KIP-932).

Versions 1-2, flexible from 0. Version 0 was an early-access version of Kafka 4.0.
   2  renew acknowledgements; response adds the timeout of acquisition locks (KIP-1222)
"""

from __future__ import annotations

from uuid import UUID

from ..schema import boolean, int8, int16, int32, int64, message, string, uuid, wire


@message
class AcknowledgementBatch:
    first_offset: int = wire(int64, "0+")
    last_offset: int = wire(int64, "0+")
    acknowledge_types: list[int] = wire([int8], "0+")


@message
class AcknowledgePartition:
    partition_index: int = wire(int32, "0+")
    acknowledgement_batches: list[AcknowledgementBatch] = wire([AcknowledgementBatch], "0+")


@message
class AcknowledgeTopic:
    topic_id: UUID = wire(uuid, "0+")
    partitions: list[AcknowledgePartition] = wire([AcknowledgePartition], "0+")


@message(versions="1-2", flexible="0+")
class ShareAcknowledgeRequest:
    group_id: str | None = wire(string, "0+", null="0+", default=None)
    member_id: str | None = wire(string, "0+", null="0+")
    share_session_epoch: int = wire(int32, "0+")
    is_renew_ack: bool = wire(boolean, "2+")
    topics: list[AcknowledgeTopic] = wire([AcknowledgeTopic], "0+")


@message
class LeaderIdAndEpoch:
    leader_id: int = wire(int32, "0+")
    leader_epoch: int = wire(int32, "0+")


@message
class PartitionData:
    partition_index: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+", default=None)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, "0+")


@message
class ShareAcknowledgeTopicResponse:
    topic_id: UUID = wire(uuid, "0+")
    partitions: list[PartitionData] = wire([PartitionData], "0+")


@message
class NodeEndpoint:
    node_id: int = wire(int32, "0+")
    host: str = wire(string, "0+")
    port: int = wire(int32, "0+")
    rack: str | None = wire(string, "0+", null="0+", default=None)


@message(versions="1-2", flexible="0+")
class ShareAcknowledgeResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+", default=None)
    acquisition_lock_timeout_ms: int = wire(int32, "2+", ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = wire([ShareAcknowledgeTopicResponse], "0+")
    node_endpoints: list[NodeEndpoint] = wire([NodeEndpoint], "0+")
