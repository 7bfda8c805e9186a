"""StopReplica (key 5): the controller stops, and optionally deletes, replicas of a broker.

Versions 0-4, flexible from 2.
   1  broker epoch; grouped
   3  per-partition leader epoch and delete flag (KIP-570)
   4  marks a KRaft controller
"""

from __future__ import annotations

from ..schema import boolean, int16, int32, int64, message, string, wire


@message
class StopReplicaPartitionV0:
    topic_name: str = wire(string, "0")
    partition_index: int = wire(int32, "0")


@message
class StopReplicaTopicV1:
    name: str = wire(string, "1-2")
    partition_indexes: list[int] = wire([int32], "1-2")


@message
class StopReplicaPartitionState:
    partition_index: int = wire(int32, "3+")
    leader_epoch: int = wire(int32, "3+", default=-1)
    delete_partition: bool = wire(boolean, "3+")


@message
class StopReplicaTopicState:
    topic_name: str = wire(string, "3+")
    partition_states: list[StopReplicaPartitionState] = wire([StopReplicaPartitionState], "3+")


@message(versions="0-4", flexible="2+")
class StopReplicaRequest:
    controller_id: int = wire(int32, "0+")
    is_kraft_controller: bool = wire(boolean, "4+")
    controller_epoch: int = wire(int32, "0+")
    broker_epoch: int = wire(int64, "1+", default=-1, ignorable=True)
    delete_partitions: bool = wire(boolean, "0-2")
    ungrouped_partitions: list[StopReplicaPartitionV0] = wire([StopReplicaPartitionV0], "0")
    topics: list[StopReplicaTopicV1] = wire([StopReplicaTopicV1], "1-2")
    topic_states: list[StopReplicaTopicState] = wire([StopReplicaTopicState], "3+")


@message
class StopReplicaPartitionError:
    topic_name: str = wire(string, "0+")
    partition_index: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")


@message(versions="0-4", flexible="2+")
class StopReplicaResponse:
    error_code: int = wire(int16, "0+")
    partition_errors: list[StopReplicaPartitionError] = wire([StopReplicaPartitionError], "0+")
