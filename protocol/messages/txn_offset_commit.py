"""TxnOffsetCommit (key 28): store group offsets as part of a transaction.

Versions 0-6, flexible from 3.
   1  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   2  leader epoch
   3  generation/member/instance fencing (KIP-447)
   4  may return TRANSACTION_ABORTABLE
   5  transaction protocol v2: implies AddOffsetsToTxn
   6  topic ids instead of names; may return GROUP_ID_NOT_FOUND, UNKNOWN_TOPIC_ID, STALE_MEMBER_EPOCH (KIP-1319)
"""

from __future__ import annotations

from uuid import UUID

from ..schema import int16, int32, int64, message, string, uuid, wire


@message
class TxnOffsetCommitRequestPartition:
    partition_index: int = wire(int32, "0+")
    committed_offset: int = wire(int64, "0+")
    committed_leader_epoch: int = wire(int32, "2+", default=-1, ignorable=True)
    committed_metadata: str | None = wire(string, "0+", null="0+")


@message
class TxnOffsetCommitRequestTopic:
    name: str = wire(string, "0-5", ignorable=True)
    topic_id: UUID = wire(uuid, "6+", ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = wire([TxnOffsetCommitRequestPartition], "0+")


@message(versions="0-6", flexible="3+")
class TxnOffsetCommitRequest:
    transactional_id: str = wire(string, "0+")
    group_id: str = wire(string, "0+")
    producer_id: int = wire(int64, "0+")
    producer_epoch: int = wire(int16, "0+")
    generation_id_or_member_epoch: int = wire(int32, "3+", default=-1)
    member_id: str = wire(string, "3+")
    group_instance_id: str | None = wire(string, "3+", null="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = wire([TxnOffsetCommitRequestTopic], "0+")


@message
class TxnOffsetCommitResponsePartition:
    partition_index: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")


@message
class TxnOffsetCommitResponseTopic:
    name: str = wire(string, "0-5", ignorable=True)
    topic_id: UUID = wire(uuid, "6+", ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = wire([TxnOffsetCommitResponsePartition], "0+")


@message(versions="0-6", flexible="3+")
class TxnOffsetCommitResponse:
    throttle_time_ms: int = wire(int32, "0+")
    topics: list[TxnOffsetCommitResponseTopic] = wire([TxnOffsetCommitResponseTopic], "0+")
