"""Who may do what to what: the numbers that operations, resources, patterns and permissions have on the wire (KIP-11).

`ANY`, and for patterns `MATCH`, belong to filters. Numbers that are none of these mean nothing.
"""

from __future__ import annotations

from enum import IntEnum


class AclOperation(IntEnum):
    """Kafka's operations; in a set of authorized operations the number is the bit's place."""

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
    """What an operation is done to."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPatternType(IntEnum):
    """How a name stands for resources (KIP-290)."""

    ANY = 1
    MATCH = 2
    """Of a filter: whatever concerns the resource of that name."""
    LITERAL = 3
    PREFIXED = 4


class AclPermissionType(IntEnum):
    """Whether something may be done or may not."""

    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME = "kafka-cluster"
"""The one resource of type CLUSTER."""
WILDCARD = "*"
"""As the name of a literal pattern all resources of a type, as a host all hosts, in `User:*` everybody."""
