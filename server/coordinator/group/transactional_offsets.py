"""Offsets committed in transactions: they are written at once, and count when the transaction is committed (KIP-98).

What readers may see in between, and that order in the log decides, is `GroupOffsets`. Here is who waits for which
marker, and the writing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ....protocol.errors import ErrorCode
from ....protocol.producer_identity import ProducerIdentity
from ..coordinator_log import CoordinatorLog
from .group_port import GroupPort
from .group_records import offset_entry
from .offset_commits import Commits, Reply, first_outcome

if TYPE_CHECKING:
    from ...config.broker_config import BrokerConfig


class TransactionalOffsets:
    """Which groups have offsets in which open transactions. Loop-thread only."""

    def __init__(
        self,
        config: BrokerConfig,
        log: CoordinatorLog,
        partition_of: Callable[[str], int],
        find: Callable[[str], GroupPort | None],
    ) -> None:
        self._config = config
        self._log = log
        self._partition_of = partition_of
        self._find = find
        self._groups: dict[tuple[int, int], set[str]] = {}
        """Names, by partition of `__consumer_offsets` and producer id."""

    def commit(self, group: GroupPort, producer: ProducerIdentity, offsets: Commits, reply: Reply) -> None:
        """Write offsets down as part of the producer's transaction; `reply` gets the outcome when they are durable."""
        kept, index = group.offsets, self._partition_of(group.group_id)
        kept.begin_pending(offsets)
        answer = first_outcome(reply)

        def done(outcome: ErrorCode) -> None:
            kept.finish_pending(offsets)
            if outcome is ErrorCode.NONE:
                kept.add_pending(producer.producer_id, offsets)
                self._groups.setdefault((index, producer.producer_id), set()).add(group.group_id)
            answer(outcome)

        self._log.append(
            index,
            (offset_entry(group.group_id, place, offset) for place, offset in offsets.items()),
            done,
            timeout_ms=self._config.offsets_commit_timeout_ms,
            on_overdue=lambda: answer(ErrorCode.REQUEST_TIMED_OUT),
            producer=producer,
        )

    def end(self, index: int, producer_id: int, *, is_commit: bool) -> None:
        """The marker is durable in that partition of `__consumer_offsets`."""
        for group_id in self._groups.pop((index, producer_id), ()):
            group = self._find(group_id)
            if group is not None:
                group.offsets.end_transaction(producer_id, is_commit=is_commit)

    def resume(self, group: GroupPort) -> None:
        """A group was loaded: transactions that are open still will end."""
        for producer_id in group.offsets.pending:
            self._groups.setdefault((self._partition_of(group.group_id), producer_id), set()).add(group.group_id)

    def unload(self, group: GroupPort) -> None:
        """This broker does not coordinate the group any more, or it is deleted."""
        index = self._partition_of(group.group_id)
        for producer_id in group.offsets.pending:
            names = self._groups.get((index, producer_id), set())
            names.discard(group.group_id)
            if not names:
                self._groups.pop((index, producer_id), None)
