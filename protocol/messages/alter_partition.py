"""AlterPartition (key 56): a leader requests a change of its in-sync replicas from the controller.

Versions 0-3, flexible from 0.
   1  leader recovery state
   2  topic ids; INELIGIBLE_REPLICA / NEW_LEADER_ELECTED
   3  ISR with broker epochs (KIP-903)
"""

from __future__ import annotations

from uuid import UUID

from ..schema import int8, int16, int32, int64, message, string, uuid, wire


@message
class BrokerState:
    broker_id: int = wire(int32, "3+")
    broker_epoch: int = wire(int64, "3+", default=-1)


@message
class PartitionData:
    partition_index: int = wire(int32, "0+")
    leader_epoch: int = wire(int32, "0+")
    new_isr: list[int] = wire([int32], "0-2")
    new_isr_with_epochs: list[BrokerState] = wire([BrokerState], "3+")
    leader_recovery_state: int = wire(int8, "1+")
    partition_epoch: int = wire(int32, "0+")


@message
class TopicData:
    topic_name: str = wire(string, "0-1", ignorable=True)
    topic_id: UUID = wire(uuid, "2+", ignorable=True)
    partitions: list[PartitionData] = wire([PartitionData], "0+")


@message(versions="0-3", flexible="0+")
class AlterPartitionRequest:
    broker_id: int = wire(int32, "0+")
    broker_epoch: int = wire(int64, "0+", default=-1)
    topics: list[TopicData] = wire([TopicData], "0+")


@message
class ResponsePartitionData:
    partition_index: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    leader_id: int = wire(int32, "0+")
    leader_epoch: int = wire(int32, "0+")
    isr: list[int] = wire([int32], "0+")
    leader_recovery_state: int = wire(int8, "1+", ignorable=True)
    partition_epoch: int = wire(int32, "0+")


@message
class ResponseTopicData:
    topic_name: str = wire(string, "0-1", ignorable=True)
    topic_id: UUID = wire(uuid, "2+", ignorable=True)
    partitions: list[ResponsePartitionData] = wire([ResponsePartitionData], "0+")


@message(versions="0-3", flexible="0+")
class AlterPartitionResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    topics: list[ResponseTopicData] = wire([ResponseTopicData], "0+")
