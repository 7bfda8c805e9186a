"""What members of classic groups ask for, apart from its encoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ....protocol.errors import ErrorCode
from .member import JoinReply, JoinResult, Protocols, SyncReply


@dataclass(frozen=True, slots=True)
class Joining:
    """A JoinGroup request."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_known_id: bool
    """The client can be told its id first and join with it (version 4)."""
    can_skip_assignment: bool
    """The client can be a leader that does not assign (version 9)."""
    reply: JoinReply

    def refuse(self, error: ErrorCode, member_id: str | None = None) -> None:
        """Answer with an error."""
        self.reply(JoinResult(error, self.member_id if member_id is None else member_id))


@dataclass(frozen=True, slots=True)
class Syncing:
    """A SyncGroup request; protocol type and name are known from version 5 on."""

    member_id: str
    group_instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]
    reply: SyncReply
