"""What a group may be called."""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError


def check_group_id(group_id: str) -> None:
    """Raises KafkaError INVALID_GROUP_ID for the empty id, under which nobody can be a member.

    Old clients may still keep offsets under it.
    """
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is invalid.")
