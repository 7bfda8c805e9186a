"""Descriptions of the brokers of a cluster and of their log directories."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.describe_quorum import DescribeQuorumResponse
from ...protocol.messages.describe_quorum import ReplicaState as _WireReplica
from ...protocol.topic_partition import TopicPartition
from ..cluster import BrokerNode
from .outcomes import raise_error

FIRST_DESCRIPTION_WITH_FENCED_BROKERS = 2


class ClusterDescription(NamedTuple):
    """The live brokers of a cluster; `controller_id` is -1 while no broker is the controller."""

    cluster_id: str | None
    controller_id: int
    brokers: list[BrokerNode]


class LogDirDescription(NamedTuple):
    """One log directory of one broker; sizes in bytes, -1 if the broker does not report them (before 3.3)."""

    broker_id: int
    path: str
    error: ErrorCode
    total_bytes: int
    usable_bytes: int
    sizes: dict[TopicPartition, int]


class QuorumReplica(NamedTuple):
    """A replica of the metadata log. Times are in ms, -1 if they are not known; the lag is counted in records."""

    replica_id: int
    replica_directory_id: UUID
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


class QuorumInfo(NamedTuple):
    """The metadata quorum of a KRaft cluster: its leader is the active controller."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]
    nodes: dict[int, list[tuple[str, str, int]]]
    """The endpoints of each voter: listener, host and port."""

    def lag(self, replica: QuorumReplica) -> int | None:
        """Return the number of records of the leader that a replica does not have; None if that is not known."""
        ends = [one.log_end_offset for one in self.voters if one.replica_id == self.leader_id]
        return ends[0] - replica.log_end_offset if ends and min(ends[0], replica.log_end_offset) >= 0 else None


def quorum_info(response: DescribeQuorumResponse) -> QuorumInfo:
    """Return the quorum in a response. Raises KafkaError."""
    raise_error(response.error_code, response.error_message)
    partitions = [partition for topic in response.topics for partition in topic.partitions]
    if len(partitions) != 1:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the response has no metadata quorum")
    (data,) = partitions
    raise_error(data.error_code, data.error_message)

    def states(found: Iterable[_WireReplica]) -> list[QuorumReplica]:
        return [
            QuorumReplica(
                one.replica_id,
                one.replica_directory_id,
                one.log_end_offset,
                one.last_fetch_timestamp,
                one.last_caught_up_timestamp,
            )
            for one in sorted(found, key=lambda one: one.replica_id)
        ]

    nodes = {node.node_id: [(one.name, one.host, one.port) for one in node.listeners] for node in response.nodes}
    voters, observers = states(data.current_voters), states(data.observers)
    return QuorumInfo(data.leader_id, data.leader_epoch, data.high_watermark, voters, observers, nodes)


def sorted_by_id(brokers: Iterable[BrokerNode]) -> list[BrokerNode]:
    return sorted(brokers, key=lambda broker: broker.node_id)
