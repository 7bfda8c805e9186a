"""The key of a share-partition (Kafka: SharePartitionKey)."""

from __future__ import annotations

import re
from typing import NamedTuple
from uuid import UUID

from ....common.uuid_text import uuid_from_text, uuid_text

JAVA_WHITESPACE = "".join(map(chr, range(0x21)))
"""The characters that Java's String.trim removes."""
_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}(==)?\Z")


class SharePartitionKey(NamedTuple):
    """A partition of a topic for one share group."""

    group_id: str
    topic_id: UUID
    partition: int

    @classmethod
    def parse(cls, key: str) -> SharePartitionKey:
        """Read `group:topic id:partition`; the group id may contain colons. Raises ValueError."""
        tokens = key.split(":")
        while tokens and not tokens[-1]:
            tokens.pop()  # Java's String.split drops trailing empty strings
        if len(tokens) < 3:
            raise ValueError(f"{key!r}: expected groupId:topicId:partition")
        *group, topic_id, partition = tokens
        group_id = ":".join(group)
        if not group_id.strip(JAVA_WHITESPACE):
            raise ValueError(f"{key!r}: the group id is empty")
        if _INTEGER.match(partition) is None or not -(1 << 31) <= int(partition) < 1 << 31:
            raise ValueError(f"{key!r}: the partition is not a 32-bit integer")
        if _TOPIC_ID.match(topic_id) is None:
            raise ValueError(f"{key!r}: the topic id is not a UUID in base64")
        return cls(group_id, uuid_from_text(topic_id[:22]), int(partition))

    @property
    def coordinator_key(self) -> str:
        """The key by which the coordinator of the share-partition is found."""
        return f"{self.group_id}:{uuid_text(self.topic_id)}:{self.partition}"
