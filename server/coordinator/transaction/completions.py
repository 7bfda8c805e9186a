"""What is decided is carried out: markers on every partition, then the record that all of them are there.

Whatever stands in the way is tried again until it works, as a transaction without its marker would keep readers of
committed records waiting for ever. Kafka's TransactionMarkerChannelManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ....protocol.errors import ErrorCode
from ....protocol.room_logger import room_logger
from .markers import MarkerWriter, TransactionMarker
from .metadata import Place
from .states import ENDING, TransactionState
from .transaction import HeldTransaction

if TYPE_CHECKING:
    from ...metadata.metadata_cache import MetadataCache

logger = room_logger("transactions")

RETRY_SECONDS = 0.1

_DONE = (ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.INVALID_PRODUCER_EPOCH)
"""Nothing is left to do there: no record of a transaction can be in an old log, and where there is a newer epoch of the
producer, what is open belongs to that one."""

Store = Callable[[HeldTransaction, Callable[[ErrorCode], None]], None]


class Completions:
    """Transactions that are decided and not complete. Loop-thread only."""

    def __init__(
        self,
        markers: MarkerWriter,
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
        epoch = self._coordinator_epoch(transaction.transactional_id)
        if epoch is None or transaction.is_changing:
            self._later(transaction)
            return
        known = transaction.metadata
        # A partition that is not there any more has been deleted.
        places = frozenset(place for place in known.partitions if self._metadata.has_partition(*place))
        transaction.metadata = known._replace(partitions=places)
        if not places:
            self._store_completed(transaction, partial(self._stored, transaction))
            return
        is_commit = known.state is TransactionState.PREPARE_COMMIT
        marker = TransactionMarker(known.producer_id, known.producer_epoch, is_commit, epoch)
        self._markers.write(marker, places, partial(self._written, transaction))

    def _written(self, transaction: HeldTransaction, outcomes: dict[Place, ErrorCode]) -> None:
        done = {place for place, error in outcomes.items() if error in _DONE}
        known = transaction.metadata
        transaction.metadata = known._replace(partitions=known.partitions - done)
        if len(done) == len(outcomes):
            self.begin(transaction)
            return
        failed = {error.name for place, error in outcomes.items() if place not in done}
        logger.info("markers of %s are missing: %s", transaction.transactional_id, ", ".join(sorted(failed)))
        self._later(transaction)

    def _stored(self, transaction: HeldTransaction, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            logger.info("the end of %s is not written down: %s", transaction.transactional_id, error.name)
            self._later(transaction)

    def _later(self, transaction: HeldTransaction) -> None:
        if not transaction.is_unloaded:
            self._loop.call_later(RETRY_SECONDS, self.begin, transaction)
