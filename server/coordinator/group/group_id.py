"""What a group may be called, and which partition of `__consumer_offsets` its name leads to."""

from __future__ import annotations

from functools import lru_cache

from ....protocol.errors import ErrorCode, KafkaError


def check_group_id(group_id: str) -> None:
    """Raises KafkaError INVALID_GROUP_ID for the empty id, under which nobody can be a member.

    Offsets may be kept under it all the same, as clients of old do.
    """
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")


@lru_cache(maxsize=20_000)
def partition_for(group_id: str, partition_count: int) -> int:
    """The partition that a group's records are in: Java's String.hashCode, without its sign (Kafka's Utils.abs)."""
    units = group_id.encode("utf-16-be", "surrogatepass")
    code = 0
    for index in range(0, len(units), 2):
        code = (31 * code + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    if code >= 1 << 31:
        code = (1 << 32) - code
    return 0 if code == 1 << 31 else code % partition_count
