"""Generations of classic groups on their way into the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from ....protocol.errors import ErrorCode
from ....protocol.room_logger import room_logger
from ..coordinator_log import TOO_LARGE, WRITE_ERRORS, CoordinatorLog, Entry
from .group import Group
from .group_records import group_entry

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig

logger = room_logger("groups")

Done = Callable[[ErrorCode], None]
"""Gets the outcome of a write as a member is to be told it."""


class GroupWriter:
    """Writes groups down, their offsets aside. Loop-thread only."""

    def __init__(self, config: BrokerConfig, log: CoordinatorLog, partition_of: Callable[[str], int]) -> None:
        self._config = config
        self._log = log
        self._partition_of = partition_of

    def store(self, group: Group, entry: Entry, done: Done) -> bool:
        """Write a generation down; `done` is called when it is durable or comes to nothing.

        Returns whether it is in the log, durable or not.
        """
        is_logged = self._log.append(
            self._partition_of(group.group_id),
            [entry],
            lambda outcome: done(_GROUP_ERRORS.get(outcome, outcome)),
            timeout_ms=self._config.offsets_commit_timeout_ms,
            may_linger=True,
        )
        group.is_logged = group.is_logged or is_logged
        return is_logged

    def store_empty(self, group: Group, leavers: Iterable[Done] = ()) -> bool:
        """Write down that a group has no members, and tell those who left it last; returns as `store`."""
        return self.store(group, group_entry(group, {}), partial(_emptied, group, leavers))


def _emptied(group: Group, leavers: Iterable[Done], outcome: ErrorCode) -> None:
    if outcome is not ErrorCode.NONE:
        # The members stay in the log: the next coordinator takes them for alive until their sessions end.
        logger.warning("group %r: that it is empty could not be written: %s", group.group_id, outcome.name)
    for leaver in leavers:
        leaver(outcome)


_GROUP_ERRORS = {
    **WRITE_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    **dict.fromkeys(TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
}
"""What a member is told when its group's state could not be written."""
