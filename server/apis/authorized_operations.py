"""Which operations a client may carry out, as the bit set that Metadata and DescribeCluster answer with."""

from __future__ import annotations

from ...protocol.acls import AclOperation

NOT_REQUESTED = -(2**31)
"""What responses say unless the client asked."""


def bit_set(*operations: AclOperation) -> int:
    """The set as a 32-bit number."""
    return sum(1 << operation for operation in operations)


ALL_TOPIC_OPERATIONS = bit_set(
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
"""Without an authorizer everybody may do whatever the resource supports."""

ALL_CLUSTER_OPERATIONS = bit_set(
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)

ALL_GROUP_OPERATIONS = bit_set(
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
"""Groups have settings since KIP-848."""
