"""Fetch (key 1): read record batches, as a consumer or as a follower.

Versions 0-18, flexible from 12.
   1  response adds throttle_time_ms
   2  answer may hold message format v1 (v0/v1 requests get down-converted to v0)
   3  whole-response byte cap; partition order in the request is the serving order
   4  answer may hold batch v2; isolation level + aborted list + last stable offset
   5  log start offset
   6  may return KAFKA_STORAGE_ERROR
   7  incremental fetch sessions (KIP-227)
   8  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   9  current leader epoch fencing (KIP-320)
  10  zstd allowed in the answer
  11  consumer rack / preferred read replica (KIP-392)
  12  last-fetched epoch and diverging epoch (truncation on fetch, KIP-595)
  13  topic ids (KIP-516)
  14  may return OFFSET_MOVED_TO_TIERED_STORAGE
  15  replica id moves to tagged replica_state with broker epoch (KIP-903)
  16  node endpoints tag (KIP-951)
  17  follower directory id (KIP-853)
  18  follower reports its high watermark (KIP-1166)
"""

from __future__ import annotations

from uuid import UUID

from ..schema import Buffer, int8, int16, int32, int64, message, record_bytes, string, uuid, wire


@message
class ReplicaState:
    replica_id: int = wire(int32, "15+", default=-1)
    replica_epoch: int = wire(int64, "15+", default=-1)


@message
class FetchPartition:
    partition: int = wire(int32, "0+")
    current_leader_epoch: int = wire(int32, "9+", default=-1, ignorable=True)
    fetch_offset: int = wire(int64, "0+")
    last_fetched_epoch: int = wire(int32, "12+", default=-1)
    log_start_offset: int = wire(int64, "5+", default=-1, ignorable=True)
    partition_max_bytes: int = wire(int32, "0+")
    replica_directory_id: UUID = wire(uuid, "17+", tag=0, ignorable=True)
    high_watermark: int = wire(int64, "18+", default=9_223_372_036_854_775_807, tag=1, ignorable=True)


@message
class FetchTopic:
    topic: str = wire(string, "0-12", ignorable=True)
    topic_id: UUID = wire(uuid, "13+", ignorable=True)
    partitions: list[FetchPartition] = wire([FetchPartition], "0+")


@message
class ForgottenTopic:
    topic: str = wire(string, "7-12", ignorable=True)
    topic_id: UUID = wire(uuid, "13+", ignorable=True)
    partitions: list[int] = wire([int32], "7+")


@message(versions="0-18", flexible="12+")
class FetchRequest:
    cluster_id: str | None = wire(string, "12+", null="12+", default=None, tag=0, ignorable=True)
    replica_id: int = wire(int32, "0-14", default=-1)
    replica_state: ReplicaState = wire(ReplicaState, "15+", tag=1)
    max_wait_ms: int = wire(int32, "0+")
    min_bytes: int = wire(int32, "0+")
    max_bytes: int = wire(int32, "3+", default=2_147_483_647, ignorable=True)
    isolation_level: int = wire(int8, "4+", ignorable=True)
    session_id: int = wire(int32, "7+", ignorable=True)
    session_epoch: int = wire(int32, "7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = wire([FetchTopic], "0+")
    forgotten_topics_data: list[ForgottenTopic] = wire([ForgottenTopic], "7+")
    rack_id: str = wire(string, "11+", ignorable=True)


@message
class EpochEndOffset:
    epoch: int = wire(int32, "12+", default=-1)
    end_offset: int = wire(int64, "12+", default=-1)


@message
class LeaderIdAndEpoch:
    leader_id: int = wire(int32, "12+", default=-1)
    leader_epoch: int = wire(int32, "12+", default=-1)


@message
class SnapshotId:
    end_offset: int = wire(int64, "12+", default=-1)
    epoch: int = wire(int32, "12+", default=-1)


@message
class AbortedTransaction:
    producer_id: int = wire(int64, "4+")
    first_offset: int = wire(int64, "4+")


@message
class PartitionData:
    partition_index: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    high_watermark: int = wire(int64, "0+")
    last_stable_offset: int = wire(int64, "4+", default=-1, ignorable=True)
    log_start_offset: int = wire(int64, "5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = wire(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = wire(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = wire([AbortedTransaction], "4+", null="4+", ignorable=True)
    preferred_read_replica: int = wire(int32, "11+", default=-1)
    records: Buffer | None = wire(record_bytes, "0+", null="0+")


@message
class FetchableTopicResponse:
    topic: str = wire(string, "0-12", ignorable=True)
    topic_id: UUID = wire(uuid, "13+", ignorable=True)
    partitions: list[PartitionData] = wire([PartitionData], "0+")


@message
class NodeEndpoint:
    node_id: int = wire(int32, "16+")
    host: str = wire(string, "16+")
    port: int = wire(int32, "16+")
    rack: str | None = wire(string, "16+", null="16+", default=None)


@message(versions="0-18", flexible="12+")
class FetchResponse:
    throttle_time_ms: int = wire(int32, "1+", ignorable=True)
    error_code: int = wire(int16, "7+", ignorable=True)
    session_id: int = wire(int32, "7+")
    responses: list[FetchableTopicResponse] = wire([FetchableTopicResponse], "0+")
    node_endpoints: list[NodeEndpoint] = wire([NodeEndpoint], "16+", tag=0)
