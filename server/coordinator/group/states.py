"""The state machine of a classic group as a table: where each state leads, and what it answers to members in order."""

from __future__ import annotations

from enum import Enum

from ....protocol.errors import ErrorCode


class GroupState(Enum):
    """The value is what DescribeGroups and ListGroups call the state."""

    EMPTY = "Empty"
    """No members; offsets may remain."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits for members to join."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """Waits for the leader's assignment."""
    STABLE = "Stable"
    """Every member can have its assignment."""
    DEAD = "Dead"
    """Removed here; a member has to look for the coordinator anew."""


_S = GroupState

TRANSITIONS: dict[GroupState, frozenset[GroupState]] = {
    _S.EMPTY: frozenset({_S.PREPARING_REBALANCE, _S.DEAD}),
    _S.PREPARING_REBALANCE: frozenset({_S.COMPLETING_REBALANCE, _S.EMPTY, _S.DEAD}),
    _S.COMPLETING_REBALANCE: frozenset({_S.STABLE, _S.PREPARING_REBALANCE, _S.DEAD}),
    _S.STABLE: frozenset({_S.PREPARING_REBALANCE, _S.DEAD}),
    _S.DEAD: frozenset(),
}
"""State -> the states that may follow it."""

CAN_REBALANCE = frozenset(state for state, following in TRANSITIONS.items() if _S.PREPARING_REBALANCE in following)
"""Where a change of membership starts a rebalance; elsewhere one is on already, or there is nothing to rebalance."""

HEARTBEAT_ANSWERS: dict[GroupState, ErrorCode] = {
    _S.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    _S.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    _S.COMPLETING_REBALANCE: ErrorCode.NONE,
    _S.STABLE: ErrorCode.NONE,
    _S.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""To a member of the present generation. REBALANCE_IN_PROGRESS is the only way old clients hear of a rebalance."""

SYNC_ANSWERS: dict[GroupState, ErrorCode] = {
    _S.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    _S.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    _S.COMPLETING_REBALANCE: ErrorCode.NONE,
    _S.STABLE: ErrorCode.NONE,
    _S.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""NONE: waits for the leader's assignment, or gets it at once."""

COMMIT_ANSWERS: dict[GroupState, ErrorCode] = {
    _S.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    _S.PREPARING_REBALANCE: ErrorCode.NONE,
    _S.COMPLETING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    _S.STABLE: ErrorCode.NONE,
    _S.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""To a member of the present generation. While others rejoin, what was read under the old assignment still counts."""
