"""Metadata (key 3): brokers, topics, and leaders of partitions.

Versions 0-13, flexible from 9.
   0  empty topic array = all topics (from v1 on null = all, empty = none)
   1  request allows null topics; response adds rack, controller_id, is_internal
   2  response adds cluster_id
   3  response adds throttle_time_ms
   4  allow_auto_topic_creation; before it creation was implied
   5  response adds offline_replicas
   6  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   7  leader epoch
   8  authorized operations bits
  10  topic ids in answer
  11  cluster authorized operations dropped (use DescribeCluster)
  12  lookup by topic id (name nullable)
  13  top-level error code (KIP-1102: REBOOTSTRAP_REQUIRED)
"""

from __future__ import annotations

from uuid import UUID

from ..schema import boolean, int16, int32, message, string, uuid, wire


@message
class MetadataRequestTopic:
    topic_id: UUID = wire(uuid, "10+", ignorable=True)
    name: str | None = wire(string, "0+", null="10+")


@message(versions="0-13", flexible="9+")
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = wire([MetadataRequestTopic], "0+", null="1+")
    allow_auto_topic_creation: bool = wire(boolean, "4+", default=True)
    include_cluster_authorized_operations: bool = wire(boolean, "8-10")
    include_topic_authorized_operations: bool = wire(boolean, "8+")


@message
class MetadataResponseBroker:
    node_id: int = wire(int32, "0+")
    host: str = wire(string, "0+")
    port: int = wire(int32, "0+")
    rack: str | None = wire(string, "1+", null="1+", default=None, ignorable=True)


@message
class MetadataResponsePartition:
    error_code: int = wire(int16, "0+")
    partition_index: int = wire(int32, "0+")
    leader_id: int = wire(int32, "0+")
    leader_epoch: int = wire(int32, "7+", default=-1, ignorable=True)
    replica_nodes: list[int] = wire([int32], "0+")
    isr_nodes: list[int] = wire([int32], "0+")
    offline_replicas: list[int] = wire([int32], "5+", ignorable=True)


@message
class MetadataResponseTopic:
    error_code: int = wire(int16, "0+")
    name: str | None = wire(string, "0+", null="12+")
    topic_id: UUID = wire(uuid, "10+", ignorable=True)
    is_internal: bool = wire(boolean, "1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = wire([MetadataResponsePartition], "0+")
    topic_authorized_operations: int = wire(int32, "8+", default=-2_147_483_648)


@message(versions="0-13", flexible="9+")
class MetadataResponse:
    throttle_time_ms: int = wire(int32, "3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = wire([MetadataResponseBroker], "0+")
    cluster_id: str | None = wire(string, "2+", null="2+", default=None, ignorable=True)
    controller_id: int = wire(int32, "1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = wire([MetadataResponseTopic], "0+")
    cluster_authorized_operations: int = wire(int32, "8-10", default=-2_147_483_648)
    error_code: int = wire(int16, "13+", ignorable=True)
