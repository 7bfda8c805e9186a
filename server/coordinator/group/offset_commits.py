"""Offsets of groups being committed, deleted, and going when their time is over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....protocol.errors import ErrorCode
from ..allowance import NOBODY, Maker
from ..coordinator_log import TOO_LARGE, WRITE_ERRORS, CoordinatorLog, Entry
from .group_port import GroupPort
from .group_records import offset_entry, offset_key
from .offsets import CommittedOffset, Place

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig

MINUTE_MS = 60_000

FIRST_VERSION_WITH_MEMBER_EPOCH = 9

Reply = Callable[[ErrorCode], None]
Commits = Mapping[Place, CommittedOffset]


@dataclass(frozen=True, slots=True)
class Committer:
    """Who commits. Without generation and member id it is a consumer that assigns its partitions itself."""

    member_id: str = ""
    group_instance_id: str | None = None
    generation: int = -1
    version: int = 0
    """Of OffsetCommit: what can be said to older ones is less."""
    maker: Maker = NOBODY

    @property
    def no_group_error(self) -> ErrorCode:
        """What a member hears if there is no group."""
        is_newer = self.version >= FIRST_VERSION_WITH_MEMBER_EPOCH
        return ErrorCode.GROUP_ID_NOT_FOUND if is_newer else ErrorCode.ILLEGAL_GENERATION


class OffsetCommits:
    """The rules by which committed offsets come and go. They can be read once they are durable. Loop-thread only."""

    def __init__(
        self,
        config: BrokerConfig,
        log: CoordinatorLog,
        partition_of: Callable[[str], int],
        *,
        on_sign_of_life: Callable[[GroupPort, str], None],
    ) -> None:
        self._config = config
        self._log = log
        self._partition_of = partition_of
        self._on_sign_of_life = on_sign_of_life

    def commit(self, group: GroupPort, committer: Committer, offsets: Commits, reply: Reply) -> None:
        """Write offsets down; `reply` gets the outcome when they are durable, or why they are not taken."""
        error = self._check(group, committer)
        if error or not offsets:
            reply(error)
            return
        group.offsets.begin(offsets)
        answer = first_outcome(reply)

        def done(outcome: ErrorCode) -> None:
            group.offsets.finish(offsets)
            if outcome is ErrorCode.NONE:
                group.offsets.commit(offsets)
            answer(outcome)

        self._log.append(
            self._partition_of(group.group_id),
            (offset_entry(group.group_id, place, offset) for place, offset in offsets.items()),
            done,
            timeout_ms=self._config.offsets_commit_timeout_ms,
            on_overdue=lambda: answer(ErrorCode.REQUEST_TIMED_OUT),
        )

    def _check(self, group: GroupPort, committer: Committer) -> ErrorCode:
        member_id, instance_id = committer.member_id, committer.group_instance_id
        error = group.check_commit(member_id, instance_id, committer.generation, committer.version)
        if error in _OF_MEMBERS_IN_ORDER:
            self._on_sign_of_life(group, member_id)
        return error

    def remove(self, group: GroupPort, places: Iterable[Place], reply: Reply) -> None:
        """Delete offsets; `reply` gets the outcome when that is durable."""
        gone = list(places)

        def done(outcome: ErrorCode) -> None:
            if outcome is ErrorCode.NONE:
                group.offsets.remove(gone)
            reply(COMMIT_ERRORS.get(outcome, outcome))

        self._log.append(
            self._partition_of(group.group_id),
            ((offset_key(group.group_id, place), None) for place in gone),
            done,
            timeout_ms=self._config.offsets_commit_timeout_ms,
            on_overdue=lambda: None,
        )

    def remove_group(self, group: GroupPort, tombstones: Iterable[Entry], reply: Reply) -> bool:
        """Delete all offsets of a group, and the group with `tombstones`; returns whether that is in the log.

        `reply` gets the outcome when it is durable.
        """
        return self._log.append(
            self._partition_of(group.group_id),
            [*((offset_key(group.group_id, place), None) for place in group.offsets.places), *tombstones],
            lambda outcome: reply(COMMIT_ERRORS.get(outcome, outcome)),
            timeout_ms=self._config.offsets_commit_timeout_ms,
        )

    def expired(self, group: GroupPort, now_ms: int) -> list[Place]:
        """Offsets whose time is over."""
        expiry = group.offset_expiry
        if expiry is None:
            return []
        return list(group.offsets.expired(now_ms, self._config.offsets_retention_minutes * MINUTE_MS, expiry))


_OF_MEMBERS_IN_ORDER = (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)

COMMIT_ERRORS = {**WRITE_ERRORS, **dict.fromkeys(TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)}
"""What a client is told when its offsets could not be written."""


def first_outcome(reply: Reply) -> Reply:
    """Replies to a commit with the first outcome that it is given: of the write, or that it takes too long."""
    waiting = [reply]

    def answer(outcome: ErrorCode) -> None:
        if waiting:
            waiting.pop()(COMMIT_ERRORS.get(outcome, outcome))

    return answer
