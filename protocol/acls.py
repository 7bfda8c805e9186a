"""Operations, resource types, pattern types and permissions of ACLs with their numbers on the wire (KIP-11).

`ANY`, and for patterns `MATCH`, are for filters only. Other numbers are unknown.
"""

from __future__ import annotations

from enum import IntEnum


class AclOperation(IntEnum):
    """Kafka's operations; in a set of authorized operations the number is the bit's position."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class AclResourceType(IntEnum):
    """Types of resources."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPatternType(IntEnum):
    """The rule by which the name of an ACL matches resources (KIP-290)."""

    ANY = 1
    MATCH = 2
    """All patterns that match the resource with that name; only filters have it."""
    LITERAL = 3
    PREFIXED = 4


class AclPermissionType(IntEnum):
    """Whether an ACL allows or denies."""

    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""
WILDCARD = "*"
"""The wildcard: all resources of a type as a literal name, all hosts as a host, all users in `User:*`."""
