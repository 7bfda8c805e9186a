"""Carries out what is decided: markers on every partition, then the record that all of them are there.

Whatever fails is tried again until it works, as a transaction without its marker would keep readers of committed
records waiting for ever. Kafka's TransactionMarkerChannelManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ....protocol.errors import ErrorCode
from ....protocol.room_logger import room_logger
from .markers import TransactionMarker, Written
from .metadata import Place
from .states import ENDING, TransactionState
from .transaction import HeldTransaction

if TYPE_CHECKING:
    from ...metadata.metadata_cache import MetadataCache

logger = room_logger("transactions")

RETRY_SECONDS, RETRY_MOST_SECONDS = 0.1, 2.0
"""The first pause, and what it grows to: a leader may be gone for long, and with it many transactions wait."""

_DONE = (ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.INVALID_PRODUCER_EPOCH)
"""Nothing is left to do there: no record of a transaction can be in an old log, and where there is a newer epoch of the
producer, what is open belongs to that one."""

Store = Callable[[HeldTransaction, Callable[[ErrorCode], None]], None]


class Markers(Protocol):
    """A way to have markers written: `MarkerWriter` here, `MarkerChannel` in the cluster."""

    def write(self, marker: TransactionMarker, places: Iterable[Place], written: Written) -> None:
        """`written` is told of each partition once, perhaps of some before others."""


class Completions:
    """Transactions that are decided and not complete. Loop-thread only."""

    def __init__(
        self,
        markers: Markers,
        metadata: MetadataCache,
        loop: asyncio.AbstractEventLoop,
        coordinator_epoch: Callable[[str], int | None],
        store_completed: Store,
    ) -> None:
        self._markers = markers
        self._metadata = metadata
        self._loop = loop
        self._coordinator_epoch = coordinator_epoch
        self._store_completed = store_completed

    def begin(self, transaction: HeldTransaction) -> None:
        """Write the markers that are missing, and go on from there."""
        if transaction.is_unloaded or transaction.metadata.state not in ENDING:
            return
        if transaction.is_changing:
            self._later(0, self.begin, transaction)
        else:
            self._write(transaction, transaction.metadata.partitions, 0)

    def _write(self, transaction: HeldTransaction, places: frozenset[Place], failures: int) -> None:
        epoch = self._coordinator_epoch(transaction.transactional_id)
        if transaction.is_unloaded:
            return
        if epoch is None:
            self._later(0, self._write, transaction, places, failures)
            return
        known = transaction.metadata
        there = frozenset(place for place in places if self._metadata.has_partition(*place))
        if len(there) < len(places):
            self._done(transaction, places - there)  # those are deleted
        if there:
            is_commit = known.state is TransactionState.PREPARE_COMMIT
            marker = TransactionMarker(known.producer_id, known.producer_epoch, is_commit, epoch)
            # In one order everywhere: what is decided by a seed does not depend on hashes.
            self._markers.write(marker, sorted(there), partial(self._written, transaction, failures))
        elif not places:
            self._done(transaction, places)

    def _written(self, transaction: HeldTransaction, failures: int, outcomes: dict[Place, ErrorCode]) -> None:
        failed = {place: error for place, error in outcomes.items() if error not in _DONE}
        if failed:
            if not failures:
                names = ", ".join(sorted({error.name for error in failed.values()}))
                logger.info("markers of %s are missing: %s", transaction.transactional_id, names)
            self._later(failures, self._write, transaction, frozenset(failed), failures + 1)
        self._done(transaction, outcomes.keys() - failed.keys())

    def _done(self, transaction: HeldTransaction, places: AbstractSet[Place]) -> None:
        """These partitions have their markers; the transaction is complete if no other is left."""
        known = transaction.metadata
        transaction.metadata = known._replace(partitions=known.partitions - places)
        if not transaction.metadata.partitions:
            self._store_completed(transaction, partial(self._stored, transaction))

    def _stored(self, transaction: HeldTransaction, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            logger.info("the end of %s is not written down: %s", transaction.transactional_id, error.name)
            self._later(0, self.begin, transaction)

    def _later(self, failures: int, work: Callable[..., None], transaction: HeldTransaction, *rest: object) -> None:
        if not transaction.is_unloaded:
            pause = min(RETRY_SECONDS * 2 ** min(failures, 10), RETRY_MOST_SECONDS)
            self._loop.call_later(pause, work, transaction, *rest)
