"""Who a consumer is in its group, as others tell it who commit for it."""

from __future__ import annotations

from typing import NamedTuple


class GroupMetadata(NamedTuple):
    """Who commits offsets in a transaction: a member of a group as it read them, or just the group (KIP-447)."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
