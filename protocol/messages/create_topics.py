"""CreateTopics (key 19): create topics.

Versions 0-7, flexible from 5.
   1  validate_only
   2  response adds throttle_time_ms
   3  throttled responses are sent immediately; the broker mutes the connection afterwards (KIP-219)
   4  -1 partitions / replication factor = broker default (KIP-464)
   5  answer lists resulting configs
   6  may return THROTTLING_QUOTA_EXCEEDED
   7  topic id in answer
"""

from __future__ import annotations

from uuid import UUID

from ..schema import boolean, int8, int16, int32, message, string, uuid, wire


@message
class CreatableReplicaAssignment:
    partition_index: int = wire(int32, "0+")
    broker_ids: list[int] = wire([int32], "0+")


@message
class CreatableTopicConfig:
    name: str = wire(string, "0+")
    value: str | None = wire(string, "0+", null="0+")


@message
class CreatableTopic:
    name: str = wire(string, "0+")
    num_partitions: int = wire(int32, "0+")
    replication_factor: int = wire(int16, "0+")
    assignments: list[CreatableReplicaAssignment] = wire([CreatableReplicaAssignment], "0+")
    configs: list[CreatableTopicConfig] = wire([CreatableTopicConfig], "0+")


@message(versions="0-7", flexible="5+")
class CreateTopicsRequest:
    topics: list[CreatableTopic] = wire([CreatableTopic], "0+")
    timeout_ms: int = wire(int32, "0+", default=60000)
    validate_only: bool = wire(boolean, "1+")


@message
class CreatableTopicConfigs:
    name: str = wire(string, "5+")
    value: str | None = wire(string, "5+", null="5+")
    read_only: bool = wire(boolean, "5+")
    config_source: int = wire(int8, "5+", default=-1, ignorable=True)
    is_sensitive: bool = wire(boolean, "5+")


@message
class CreatableTopicResult:
    name: str = wire(string, "0+")
    topic_id: UUID = wire(uuid, "7+", ignorable=True)
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "1+", null="1+", ignorable=True)
    topic_config_error_code: int = wire(int16, "5+", tag=0, ignorable=True)
    num_partitions: int = wire(int32, "5+", default=-1, ignorable=True)
    replication_factor: int = wire(int16, "5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = wire([CreatableTopicConfigs], "5+", null="5+", ignorable=True)


@message(versions="0-7", flexible="5+")
class CreateTopicsResponse:
    throttle_time_ms: int = wire(int32, "2+", ignorable=True)
    topics: list[CreatableTopicResult] = wire([CreatableTopicResult], "0+")
