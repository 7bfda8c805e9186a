"""The authorized operations of a client, as the bit set in Metadata and Describe responses (KIP-430)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType

if TYPE_CHECKING:
    from .request_context import RequestContext

NOT_REQUESTED = -(2**31)
"""The value in responses to requests without `include_…_authorized_operations`."""

SUPPORTED = {
    AclResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    # The two for configurations since KIP-848.
    AclResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
}
"""The operations that exist for each type of resource."""


def _bit_set(operations: Iterable[AclOperation]) -> int:
    """Return the set as a 32-bit number."""
    return sum(1 << operation for operation in operations)


_ALL = {kind: _bit_set(operations) for kind, operations in SUPPORTED.items()}


def authorized_operations(ctx: RequestContext, kind: AclResourceType, name: str = CLUSTER_NAME) -> int:
    """Return the operations on the resource that the client is authorized for: all of them without an authorizer."""
    if not ctx.has_authorizer:
        return _ALL[kind]
    return _bit_set(operation for operation in SUPPORTED[kind] if ctx.is_authorized(operation, kind, name))


def cluster_operations(ctx: RequestContext) -> int:
    """Return the authorized operations on the cluster: none if the client may not describe the cluster."""
    if not ctx.is_authorized(AclOperation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return authorized_operations(ctx, AclResourceType.CLUSTER)
