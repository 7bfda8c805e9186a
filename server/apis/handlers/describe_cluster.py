"""DescribeCluster (key 60): cluster id, controller and brokers.

v1 distinguishes the endpoints of brokers and controllers (KIP-919): this listener is a broker's. v2 can include fenced
brokers (KIP-1073), which only KRaft clusters have.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ...metadata.metadata_cache import MetadataCache
from ..authorized_operations import NOT_REQUESTED, cluster_operations
from ..request_context import RequestContext

BROKERS, CONTROLLERS = 1, 2


def handle(
    ctx: RequestContext, request: DescribeClusterRequest, *, metadata_cache: MetadataCache
) -> DescribeClusterResponse:
    """Raises KafkaError MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE."""
    if request.endpoint_type == CONTROLLERS:
        text = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, text)
    if request.endpoint_type != BROKERS:
        text = f"Unsupported endpoint type {request.endpoint_type}"
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, text)
    asked = request.include_cluster_authorized_operations
    brokers = [
        DescribeClusterBroker(broker_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
        for broker in metadata_cache.response_brokers(ctx.listener.name)
    ]
    if request.include_fenced_brokers:
        brokers += [
            DescribeClusterBroker(
                broker_id=broker.broker_id, host=one.host, port=one.port, rack=broker.rack, is_fenced=True
            )
            for broker in metadata_cache.fenced_brokers.values()
            for one in broker.endpoints
            if one.listener_name == ctx.listener.name
        ]
    return DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=metadata_cache.cluster_id,
        controller_id=metadata_cache.controller_id,
        brokers=brokers,
        cluster_authorized_operations=cluster_operations(ctx) if asked else NOT_REQUESTED,
    )
