"""The identity of a consumer in its group, for commits by a transactional producer."""

from __future__ import annotations

from typing import NamedTuple


class GroupMetadata(NamedTuple):
    """The identity for a commit in a transaction: a member of a group at the time of its read, or only the group
    (KIP-447).
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
