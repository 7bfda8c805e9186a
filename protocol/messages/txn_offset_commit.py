"""TxnOffsetCommit (key 28): store group offsets as part of a transaction.

Versions 0-5, flexible from 3.
   1  throttled answers leave at once, the broker mutes the connection afterwards (KIP-219)
   2  leader epoch
   3  generation/member/instance fencing (KIP-447)
   4  may answer TRANSACTION_ABORTABLE
   5  transaction protocol v2: implies AddOffsetsToTxn
"""

from __future__ import annotations

from ..schema import int16, int32, int64, message, string, wire


@message
class TxnOffsetCommitRequestPartition:
    partition_index: int = wire(int32, "0+")
    committed_offset: int = wire(int64, "0+")
    committed_leader_epoch: int = wire(int32, "2+", default=-1, ignorable=True)
    committed_metadata: str | None = wire(string, "0+", null="0+")


@message
class TxnOffsetCommitRequestTopic:
    name: str = wire(string, "0+")
    partitions: list[TxnOffsetCommitRequestPartition] = wire([TxnOffsetCommitRequestPartition], "0+")


@message(versions="0-5", flexible="3+")
class TxnOffsetCommitRequest:
    transactional_id: str = wire(string, "0+")
    group_id: str = wire(string, "0+")
    producer_id: int = wire(int64, "0+")
    producer_epoch: int = wire(int16, "0+")
    generation_id: int = wire(int32, "3+", default=-1)
    member_id: str = wire(string, "3+")
    group_instance_id: str | None = wire(string, "3+", null="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = wire([TxnOffsetCommitRequestTopic], "0+")


@message
class TxnOffsetCommitResponsePartition:
    partition_index: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")


@message
class TxnOffsetCommitResponseTopic:
    name: str = wire(string, "0+")
    partitions: list[TxnOffsetCommitResponsePartition] = wire([TxnOffsetCommitResponsePartition], "0+")


@message(versions="0-5", flexible="3+")
class TxnOffsetCommitResponse:
    throttle_time_ms: int = wire(int32, "0+")
    topics: list[TxnOffsetCommitResponseTopic] = wire([TxnOffsetCommitResponseTopic], "0+")
