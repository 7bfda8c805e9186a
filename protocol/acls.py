"""Who may do what to what: the numbers that operations and kinds of resources have on the wire (KIP-11)."""

from __future__ import annotations

from enum import IntEnum


class AclOperation(IntEnum):
    """Kafka's operations; in a set of authorized operations the number is the bit's place."""

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


class AclResourceType(IntEnum):
    """What an operation is done to."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


CLUSTER_NAME = "kafka-cluster"
"""The one resource of type CLUSTER."""
