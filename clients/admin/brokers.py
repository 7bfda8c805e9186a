"""Descriptions of the brokers of a cluster and of their log directories."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...protocol.errors import ErrorCode
from ...protocol.topic_partition import TopicPartition
from ..cluster import BrokerNode


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


def sorted_by_id(brokers: Iterable[BrokerNode]) -> list[BrokerNode]:
    return sorted(brokers, key=lambda broker: broker.node_id)
