"""DescribeCluster (key 60): cluster id, controller and brokers.

Versions 0-2, flexible from 0.
   1  brokers or controllers endpoint type (KIP-919)
   2  include fenced brokers
"""

from __future__ import annotations

from ..schema import boolean, int8, int16, int32, message, string, wire


@message(versions="0-2", flexible="0+")
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = wire(boolean, "0+")
    endpoint_type: int = wire(int8, "1+", default=1)
    include_fenced_brokers: bool = wire(boolean, "2+")


@message
class DescribeClusterBroker:
    broker_id: int = wire(int32, "0+")
    host: str = wire(string, "0+")
    port: int = wire(int32, "0+")
    rack: str | None = wire(string, "0+", null="0+", default=None)
    is_fenced: bool = wire(boolean, "2+")


@message(versions="0-2", flexible="0+")
class DescribeClusterResponse:
    throttle_time_ms: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "0+", null="0+", default=None)
    endpoint_type: int = wire(int8, "1+", default=1)
    cluster_id: str = wire(string, "0+")
    controller_id: int = wire(int32, "0+", default=-1)
    brokers: list[DescribeClusterBroker] = wire([DescribeClusterBroker], "0+")
    cluster_authorized_operations: int = wire(int32, "0+", default=-2_147_483_648)
