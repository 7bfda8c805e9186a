"""Which operations a client may carry out, as the bit set that Metadata and the Describe APIs answer with (KIP-430)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType

if TYPE_CHECKING:
    from .request_context import RequestContext

NOT_REQUESTED = -(2**31)
"""What responses say unless the client asked."""

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
    # Groups have settings since KIP-848.
    AclResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
}
"""What can be done to a resource at all."""


def _bit_set(operations: Iterable[AclOperation]) -> int:
    """The set as a 32-bit number."""
    return sum(1 << operation for operation in operations)


_ALL = {kind: _bit_set(operations) for kind, operations in SUPPORTED.items()}


def authorized_operations(ctx: RequestContext, kind: AclResourceType, name: str = CLUSTER_NAME) -> int:
    """What the client may do to the resource; without an authorizer, whatever can be done to it."""
    if not ctx.is_guarded:
        return _ALL[kind]
    return _bit_set(operation for operation in SUPPORTED[kind] if ctx.may(operation, kind, name))


def cluster_operations(ctx: RequestContext) -> int:
    """What the client may do to the cluster, told only if it may describe it."""
    if not ctx.may(AclOperation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return authorized_operations(ctx, AclResourceType.CLUSTER)
