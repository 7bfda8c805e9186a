"""The line in which all writes to a tree stand, whoever asks for them: checked in order, durable before they are seen.

What comes while the disk is busy is stored together in the next round, as ZooKeeper does: the cost of a sync is divided
among everybody who waits for one.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..runtime.turns import TREE_WRITES
from .metadata_store import STORE_LANE, StoreUnavailableError
from .node_tree import NodeTree, Transaction

if TYPE_CHECKING:
    from ..runtime.ports import Work
    from .tree_journal import Journal

Plan = Callable[[], Transaction]
Done = Callable[[Transaction | BaseException], None]
"""Called with what was applied, or why nothing was: on the loop, in the order of the plans. Must not raise."""


class WriteLine:
    """Writes to one tree. Loop-thread only.

    With `work` the journal is written on a lane of its own, so that a slow disk does not hold up the loop; without it
    the journal is written at once, and `done` is called before `submit` returns, unless another `done` calls `submit`.
    """

    def __init__(self, tree: NodeTree, journal: Journal | None = None, work: Work | None = None) -> None:
        self.tree = tree
        self._journal = journal
        self._work = work
        self._waiting: deque[tuple[Plan, Done]] = deque()
        self._is_busy = False
        self._idle: list[asyncio.Future[None]] = []

    def submit(self, plan: Plan, done: Done) -> None:
        """Has `plan` called when it is its turn, and its transaction stored and applied. It may raise."""
        self._waiting.append((plan, done))
        self._go_on()

    async def run(self, plan: Plan) -> Transaction:
        """`submit` for coroutines. A write that has begun is finished even if nobody waits for it any more."""
        future: asyncio.Future[Transaction] = asyncio.get_running_loop().create_future()

        self.submit(plan, partial(_settle, future))
        try:
            return await future
        finally:
            # An error leads back to this frame: a circle that only the garbage collector would find.
            del future

    async def close(self) -> None:
        """Waits until all that was submitted is done, and lets the database go."""
        if self._is_busy:
            idle = asyncio.get_running_loop().create_future()
            self._idle.append(idle)
            await idle
        if self._journal is not None:
            self._journal.close()

    def _go_on(self) -> None:
        while self._waiting and not self._is_busy:
            self._is_busy = True
            self._begin_round()

    def _begin_round(self) -> None:
        outcomes: list[tuple[Transaction | BaseException, Done]] = []
        while self._waiting and len(outcomes) < TREE_WRITES:
            plan, done = self._waiting.popleft()
            try:
                outcomes.append((plan(), done))
            except Exception as error:  # noqa: BLE001 - handed to whoever asked
                outcomes.append((error, done))
        stored = [outcome for outcome, _ in outcomes if isinstance(outcome, Transaction) and not outcome.is_empty]
        if self._journal is None or not stored:
            self._end_round(outcomes, None)
        elif self._work is None:
            self._end_round(outcomes, self._store(self._journal, stored))
        else:
            journal = self._journal
            try:
                self._work.submit(
                    STORE_LANE,
                    lambda: journal.write(stored),
                    lambda _, error: self._end_stored_round(outcomes, error),
                )
            except RuntimeError as error:
                # The lanes are closed: the broker has stopped.
                self._end_round(outcomes, error)

    @staticmethod
    def _store(journal: Journal, transactions: Sequence[Transaction]) -> BaseException | None:
        try:
            journal.write(transactions)
        except sqlite3.Error as error:
            return error
        return None

    def _end_stored_round(
        self, outcomes: list[tuple[Transaction | BaseException, Done]], error: BaseException | None
    ) -> None:
        self._end_round(outcomes, error)
        self._go_on()

    def _end_round(self, outcomes: list[tuple[Transaction | BaseException, Done]], error: BaseException | None) -> None:
        """First on disk, then in memory: what a reader has seen survives."""
        if error is not None:
            # Whoever was refused may have been because of what is not there now.
            self.tree.abandon_plans()
        for outcome, done in outcomes:
            if error is not None:
                done(_unavailable(error))
                continue
            if isinstance(outcome, Transaction) and not outcome.is_empty:
                self.tree.apply(outcome)
            done(outcome)
        self._is_busy = False
        if not self._waiting:
            idle, self._idle = self._idle, []
            for future in idle:
                future.set_result(None)


def _settle(future: asyncio.Future[Transaction], outcome: Transaction | BaseException) -> None:
    if future.done():
        return
    if isinstance(outcome, Transaction):
        future.set_result(outcome)
    else:
        future.set_exception(outcome)


def _unavailable(error: BaseException) -> StoreUnavailableError:
    unavailable = StoreUnavailableError(f"the metadata store cannot be written: {error}")
    unavailable.__cause__ = error
    return unavailable
