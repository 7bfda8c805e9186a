"""UpdateMetadata (key 6): the controller spreads the cluster state among the brokers.

Versions 0-8, flexible from 6.
   1  several endpoints per broker
   2  rack
   3  listener name
   4  offline replicas
   5  broker epoch; grouped by topic
   7  topic ids
   8  marks a KRaft controller
"""

from __future__ import annotations

from uuid import UUID

from ..schema import boolean, int8, int16, int32, int64, message, string, uuid, wire


@message
class UpdateMetadataPartitionState:
    topic_name: str = wire(string, "0-4", ignorable=True)
    partition_index: int = wire(int32, "0+")
    controller_epoch: int = wire(int32, "0+")
    leader: int = wire(int32, "0+")
    leader_epoch: int = wire(int32, "0+")
    isr: list[int] = wire([int32], "0+")
    zk_version: int = wire(int32, "0+")
    replicas: list[int] = wire([int32], "0+")
    offline_replicas: list[int] = wire([int32], "4+", ignorable=True)


@message
class UpdateMetadataTopicState:
    topic_name: str = wire(string, "5+")
    topic_id: UUID = wire(uuid, "7+", ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = wire([UpdateMetadataPartitionState], "5+")


@message
class UpdateMetadataEndpoint:
    port: int = wire(int32, "1+")
    host: str = wire(string, "1+")
    listener: str = wire(string, "3+", ignorable=True)
    security_protocol: int = wire(int16, "1+")


@message
class UpdateMetadataBroker:
    id: int = wire(int32, "0+")
    v0_host: str = wire(string, "0", ignorable=True)
    v0_port: int = wire(int32, "0", ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = wire([UpdateMetadataEndpoint], "1+", ignorable=True)
    rack: str | None = wire(string, "2+", null="2+", ignorable=True)


@message(versions="0-8", flexible="6+")
class UpdateMetadataRequest:
    controller_id: int = wire(int32, "0+")
    is_kraft_controller: bool = wire(boolean, "8+")
    type: int = wire(int8, "8+", tag=0)
    controller_epoch: int = wire(int32, "0+")
    broker_epoch: int = wire(int64, "5+", default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = wire([UpdateMetadataPartitionState], "0-4")
    topic_states: list[UpdateMetadataTopicState] = wire([UpdateMetadataTopicState], "5+")
    live_brokers: list[UpdateMetadataBroker] = wire([UpdateMetadataBroker], "0+")


@message(versions="0-8", flexible="6+")
class UpdateMetadataResponse:
    error_code: int = wire(int16, "0+")
