"""ZooKeeper's SyncRequestProcessor: the queue of all writes to a tree. They are durable before they are visible.

Writes that arrive while the disk is busy are stored together in the next round: they share one sync.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...protocol.errors import as_value
from ..runtime.loop_sharing import Steps
from .data_tree import OPERATIONS_PER_STEP, DataTree, Transaction
from .metadata_store import STORE_LANE, StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from ..runtime.ports import Work
    from .tree_journal import Journal

WRITES_PER_SYNC = 128
"""Writes that are checked together and then share a sync."""

CHANGES_PER_TURN = OPERATIONS_PER_STEP
"""Changed nodes of small writes that are checked, or become visible, in one turn of the loop."""

Plan = Callable[[], Transaction | Steps[Transaction]]
"""Returns a transaction, or the steps that plan it in several turns of the loop."""
TransactionCallback = Callable[[Transaction | BaseException], None]
"""Called with the applied transaction, or with the error: on the loop, in the order of the plans. Must not raise."""
Round = list[tuple[Transaction | BaseException, TransactionCallback]]
"""Planned writes that are stored together."""


class SyncRequestProcessor:
    """ZooKeeper's SyncRequestProcessor: the writes to one tree. It runs on the loop thread.

    With `work` the journal is written on a lane of its own, so that a slow disk does not block the loop; without it
    the journal is written immediately, and `done` is called before `submit` returns, unless a `done` calls `submit`.
    """

    def __init__(self, tree: DataTree, journal: Journal | None = None, work: Work | None = None) -> None:
        self.tree = tree
        self._journal = journal
        self._work = work
        self._waiting: deque[tuple[Plan, TransactionCallback]] = deque()
        self._is_busy = False
        self._idle: list[asyncio.Future[None]] = []
        self.on_full: Callable[[], None] | None = None
        """Called when a write fails because the disk is full."""

    def submit(self, plan: Plan, done: TransactionCallback) -> None:
        """Call `plan` after the earlier writes, then store and apply its transaction. `plan` may raise."""
        self._waiting.append((plan, done))
        self._go_on()

    async def run(self, plan: Plan) -> Transaction:
        """Submit a write and wait for it. A write that has begun is finished even if the caller is cancelled."""
        future: asyncio.Future[Transaction] = asyncio.get_running_loop().create_future()

        self.submit(plan, partial(_settle, future))
        try:
            return await future
        finally:
            # An error refers to this frame: a reference cycle that only the garbage collector would find.
            del future

    async def close(self) -> None:
        """Wait until all submitted writes are done, and close the database."""
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
        self._run(self._plan_round())

    def _run(self, steps: Steps[None]) -> None:
        """Run a part of a round, each step in a turn of the loop; without lanes in this turn."""
        for _ in steps:
            if self._work is not None:
                asyncio.get_running_loop().call_soon(self._continue, steps)
                return

    def _continue(self, steps: Steps[None]) -> None:
        self._run(steps)
        self._go_on()

    def _plan_round(self) -> Steps[None]:
        """Plan waiting writes, each upon the plans before it, and store them together. No write is applied before."""
        round_, changes = Round(), 0
        while self._waiting and len(round_) < WRITES_PER_SYNC:
            if changes >= CHANGES_PER_TURN:
                changes = 0
                yield
            plan, done = self._waiting.popleft()
            outcome = yield from _outcome_of(plan)
            round_.append((outcome, done))
            changes += _changes_of(outcome)
        stored = [outcome for outcome, _ in round_ if isinstance(outcome, Transaction) and not outcome.is_empty]
        if self._journal is None or not stored:
            yield from self._end_round(round_)
        elif self._work is None:
            yield from self._end_stored_round(round_, self._store(self._journal, stored))
        else:
            journal = self._journal
            try:
                self._work.submit(
                    STORE_LANE,
                    lambda: journal.write(stored),
                    lambda _, error: self._continue(self._end_stored_round(round_, error)),
                )
            except RuntimeError as error:
                # The lanes are closed: the broker has stopped.
                yield from self._end_stored_round(round_, error)

    @staticmethod
    def _store(journal: Journal, transactions: Sequence[Transaction]) -> BaseException | None:
        try:
            journal.write(transactions)
        except sqlite3.Error as error:
            return error
        return None

    def _end_stored_round(self, round_: Round, error: BaseException | None) -> Steps[None]:
        if error is not None:
            if self.on_full is not None and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                self.on_full()
            # A plan may have been refused because of an earlier plan that is now lost.
            self.tree.abandon_plans()
            round_ = [(_unavailable(error), done) for _, done in round_]
        yield from self._end_round(round_)

    def _end_round(self, round_: Round) -> Steps[None]:
        """Apply the stored writes: first on disk, then in memory, so that a value that was read survives a crash."""
        changes = 0
        for outcome, done in round_:
            if changes >= CHANGES_PER_TURN:
                changes = 0
                yield
            if isinstance(outcome, Transaction) and not outcome.is_empty:
                self.tree.apply(outcome)
            changes += _changes_of(outcome)
            done(outcome)
        self._is_busy = False
        if not self._waiting:
            idle, self._idle = self._idle, []
            for future in idle:
                future.set_result(None)


def _changes_of(outcome: Transaction | BaseException) -> int:
    return 1 + (len(outcome.changes) if isinstance(outcome, Transaction) else 0)


def _outcome_of(plan: Plan) -> Steps[Transaction | BaseException]:
    try:
        found = plan()
        return found if isinstance(found, Transaction) else (yield from found)
    except (StoreError, ValueError) as refusal:
        return as_value(refusal)  # its traceback refers to the frame of the round, which has all outcomes
    except Exception as error:  # noqa: BLE001 - passed to the caller of `submit`, which logs it with its traceback
        return error


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
