"""LeaderAndIsr (key 4): the controller assigns leaders and followers to a broker.

Versions 0-7, flexible from 4.
   1  is_new_replica
   2  broker epoch; partitions grouped by topic (KIP-380)
   3  adding/removing replicas (KIP-455)
   5  topic ids; type 0 unknown 1 incremental 2 full
   6  leader recovery state (KIP-704)
   7  marks a KRaft controller (KIP-866)
"""

from __future__ import annotations

from uuid import UUID

from ..schema import boolean, int8, int16, int32, int64, message, string, uuid, wire


@message
class LeaderAndIsrPartitionState:
    topic_name: str = wire(string, "0-1", ignorable=True)
    partition_index: int = wire(int32, "0+")
    controller_epoch: int = wire(int32, "0+")
    leader: int = wire(int32, "0+")
    leader_epoch: int = wire(int32, "0+")
    isr: list[int] = wire([int32], "0+")
    partition_epoch: int = wire(int32, "0+")
    replicas: list[int] = wire([int32], "0+")
    adding_replicas: list[int] = wire([int32], "3+", ignorable=True)
    removing_replicas: list[int] = wire([int32], "3+", ignorable=True)
    is_new: bool = wire(boolean, "1+", ignorable=True)
    leader_recovery_state: int = wire(int8, "6+")


@message
class LeaderAndIsrTopicState:
    topic_name: str = wire(string, "2+")
    topic_id: UUID = wire(uuid, "5+", ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = wire([LeaderAndIsrPartitionState], "2+")


@message
class LeaderAndIsrLiveLeader:
    broker_id: int = wire(int32, "0+")
    host_name: str = wire(string, "0+")
    port: int = wire(int32, "0+")


@message(versions="0-7", flexible="4+")
class LeaderAndIsrRequest:
    controller_id: int = wire(int32, "0+")
    is_kraft_controller: bool = wire(boolean, "7+")
    controller_epoch: int = wire(int32, "0+")
    broker_epoch: int = wire(int64, "2+", default=-1, ignorable=True)
    type: int = wire(int8, "5+")
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = wire([LeaderAndIsrPartitionState], "0-1")
    topic_states: list[LeaderAndIsrTopicState] = wire([LeaderAndIsrTopicState], "2+")
    live_leaders: list[LeaderAndIsrLiveLeader] = wire([LeaderAndIsrLiveLeader], "0+")


@message
class LeaderAndIsrPartitionError:
    topic_name: str = wire(string, "0-4", ignorable=True)
    partition_index: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")


@message
class LeaderAndIsrTopicError:
    topic_id: UUID = wire(uuid, "5+")
    partition_errors: list[LeaderAndIsrPartitionError] = wire([LeaderAndIsrPartitionError], "5+")


@message(versions="0-7", flexible="4+")
class LeaderAndIsrResponse:
    error_code: int = wire(int16, "0+")
    partition_errors: list[LeaderAndIsrPartitionError] = wire([LeaderAndIsrPartitionError], "0-4")
    topics: list[LeaderAndIsrTopicError] = wire([LeaderAndIsrTopicError], "5+")
